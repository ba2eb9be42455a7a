"""Fields of Kueue's configuration file about its servers' TLS: `tls`. Kueue's gate `TLSOptions` turns them on."""

from __future__ import annotations

import ssl
from typing import Final

from gangline.api.read.configuration.fields import ConfigurationError, choice, rows
from gangline.api.read.configuration.gates import Gates
from gangline.kube.resources import Json
from gangline.tls.context import USUAL, Handshakes

GATE: Final = "TLSOptions"
_OLDEST, _NEWEST = "VersionTLS12", "VersionTLS13"
#: ciphers of TLS 1.2: Go's name -> OpenSSL's
CIPHERS: Final = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256": "ECDHE-ECDSA-AES128-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256": "ECDHE-RSA-AES128-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
    "TLS_RSA_WITH_AES_128_GCM_SHA256": "AES128-GCM-SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384": "AES256-GCM-SHA384",
    "TLS_RSA_WITH_AES_128_CBC_SHA": "AES128-SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256": "AES128-SHA256",
    "TLS_RSA_WITH_AES_256_CBC_SHA": "AES256-SHA",
}
#: ciphers of TLS 1.3: as in Go they may be named, and are accepted whether they are or not
ALWAYS: Final = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


def load(section: Json, gates: Gates) -> tuple[Handshakes, list[str]]:
    """What servers accept, and the fields that are set and have no effect. Raises ConfigurationError."""
    version = choice(section, "tls.minVersion", _OLDEST, _NEWEST)
    named = rows(section.get("cipherSuites"), "tls.cipherSuites", len(CIPHERS) + len(ALWAYS))
    for i, name in enumerate(named):
        if name not in CIPHERS and name not in ALWAYS:
            raise ConfigurationError(
                f"tls.cipherSuites[{i}]: {str(name)[:80]!r} is none of {', '.join(sorted(CIPHERS))}"
            )
    if named and version == _NEWEST:
        raise ConfigurationError("tls.cipherSuites: may not be specified when `minVersion` is 'VersionTLS13'")
    if not gates.on(GATE):
        return USUAL, ["tls"] if section else []
    ciphers = tuple(dict.fromkeys(CIPHERS[name] for name in named if name in CIPHERS)) if named else None
    least = ssl.TLSVersion.TLSv1_3 if version == _NEWEST else ssl.TLSVersion.TLSv1_2
    # Python cannot choose several groups for the exchange of keys
    return Handshakes(least, ciphers), ["tls.curvePreferences"] if section.get("curvePreferences") else []
