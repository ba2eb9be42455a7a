"""Names under which Kueue installs itself, unless its administrator has chosen others."""

from __future__ import annotations

from typing import Final

from gangline.api import names

NAMESPACE: Final = names.KUEUE_NAMESPACE
DEPLOYMENT: Final = "kueue-controller-manager"
#: label of everything that Kueue's manifests and its chart install
SELECTOR: Final = "app.kubernetes.io/name=kueue"
#: ConfigMap with its configuration, and the key in it
CONFIGURATION: Final = "kueue-manager-config"
CONFIGURATION_KEY: Final = "controller_manager_config.yaml"
#: finalizer and label on pods that Kueue manages
MANAGED: Final = f"{names.GROUP}/managed"
#: scheduling gate of pods that Kueue has not admitted yet
ADMISSION_GATE: Final = f"{names.GROUP}/admission"
