"""Kueue's configuration file, which configures Gangline unchanged.

In: the file's content. Out: the engine's settings, and those of the process; ConfigurationError names the field.
"""

from gangline.api.read.configuration.fields import ConfigurationError
from gangline.api.read.configuration.file import GATES, GROUP, Configuration, load

__all__ = ["GATES", "GROUP", "Configuration", "ConfigurationError", "load"]
