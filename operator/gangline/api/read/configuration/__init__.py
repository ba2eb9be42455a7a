"""Kueue's configuration file, which configures Gangline unchanged.

In: the file's content. Out: the engine's settings, which jobs are managed, and the settings of the processes;
ConfigurationError names the field.

More than a dozen modules: one for each section of the file, and one for each thing that sections share (fields, shapes,
selectors, gates, versions).
"""

from gangline.api.read.configuration.fields import ConfigurationError
from gangline.api.read.configuration.file import GATES, GROUP, Configuration, load, parse
from gangline.api.read.configuration.managed_jobs import ManagedJobs

__all__ = ["GATES", "GROUP", "Configuration", "ConfigurationError", "ManagedJobs", "load", "parse"]
