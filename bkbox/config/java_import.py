"""Converts the configuration of one of Apache's bookies (bk_server.conf) to one of bkbox.

Every key of the file is accounted for: it is converted, or there is a reason why it has no counterpart. The meaning of
the keys: ServerConfiguration.java, AbstractConfiguration.java.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from bkbox.base.text import quoted
from bkbox.base.values import frozen_struct
from bkbox.config.java_properties import Property
from bkbox.config.java_unsupported import reason_for
from bkbox.config.metadata_uri import METADATA_STORE, OTHER_STORES
from bkbox.config.schema import SCHEMA, checked
from bkbox.config.values import WrongValueError, join_address
from bkbox.errors import ConfigError

_PORT = "3181"
_ROOT = "/ledgers"
_ZOOKEEPER_PORT = "2181"
_LAYOUTS = {
    "FlatLedgerManagerFactory": "flat",
    "HierarchicalLedgerManagerFactory": "hierarchical",
    "LongHierarchicalLedgerManagerFactory": "longhierarchical",
}


@frozen_struct
class Remark:
    """The result for one key of the file; ``imported``: it is in the new configuration."""

    property: Property
    imported: bool
    text: str


@frozen_struct
class Imported:
    """Values for the new configuration in the form of TOML, and a remark for each key of the old one."""

    values: Mapping[str, object]
    remarks: list[Remark]


def convert(properties: Mapping[str, Property], name: str, host: str) -> Imported:
    """Converts the properties. ``host``: the address to advertise if the file has none; may be empty. ``name``: the
    file, for problems.

    Raises ConfigError with every value that cannot be converted as it is, and with what is missing.
    """
    return _Conversion(properties, name, host).result()


class _Conversion:
    """The conversion of one file. Keys are read one after the other; those never read have no counterpart."""

    def __init__(self, properties: Mapping[str, Property], name: str, host: str) -> None:
        self._properties = properties
        self._name = name
        self._values: dict[str, object] = {}
        self._remarks: dict[str, Remark] = {}
        self._problems: list[str] = []
        self._address(host)
        self._metadata()
        self._disks()
        self._promise()
        for java, key, form in _SCALARS:
            self._scalar(java, key, form)
        self._resume()

    def result(self) -> Imported:
        if self._problems:
            raise ConfigError(self._problems)
        for key, found in self._properties.items():
            self._remarks.setdefault(key, Remark(found, False, reason_for(key)))
        return Imported(self._values, [self._remarks[key] for key in self._properties])

    # ---- required keys ------------------------------------------------------------------------------

    def _address(self, host: str) -> None:
        port = self._text("bookiePort", "listen") or _PORT
        advertised = self._text("advertisedAddress", "advertised_host") or host
        if not advertised:
            self._problems.append(
                f"{self._name}: advertisedAddress is missing: say with --host under which name or address the "
                "others reach the bookie"
            )
        self._put("listen", f"0.0.0.0:{port}", "bookiePort")
        if advertised:
            self._put("advertised_host", advertised, "advertisedAddress")
        if name := self._text("bookieId", "bookie_id"):
            self._put("bookie_id", name, "bookieId")

    def _metadata(self) -> None:
        """``metadataServiceUri``, or the older keys that it replaces."""
        uri = self._text("metadataServiceUri", "metadata")
        if not uri:
            servers = self._properties.get("zkServers")
            if servers is None:
                self._problems.append(
                    f"{self._name}: neither metadataServiceUri nor zkServers is there"
                )
                return
            self._took("zkServers", "metadata")
            root = self._text("zkLedgersRootPath", "metadata") or _ROOT
            layout = self._layout()
            hosts = ";".join(map(_with_port, servers.items()))
            uri = f"zk{'+' + layout if layout else ''}://{hosts}{root}"
            self._put("metadata", uri, "zkServers")
            return
        for key in ("zkServers", "zkLedgersRootPath"):
            if key in self._properties:
                self._remark(key, imported=False, text="metadataServiceUri is there and counts")
        self._put("metadata", _with_ports(uri), "metadataServiceUri")

    def _layout(self) -> str:
        if name := self._text("ledgerManagerFactoryClass", "metadata"):
            layout = _LAYOUTS.get(name.rpartition(".")[2])
            if layout is None:
                self._problem("ledgerManagerFactoryClass", f"bkbox has no layout for {name}")
            return layout or ""
        return self._text("ledgerManagerType", "metadata") or ""

    def _disks(self) -> None:
        found = self._properties.get("ledgerDirectories")
        if found is None:
            self._problems.append(f"{self._name}: ledgerDirectories is missing")
            return
        self._put("disks", found.items(), "ledgerDirectories")
        self._remark(
            "ledgerDirectories",
            imported=True,
            text="disks. bkbox takeover converts what Java's bookie has there; for a new bookie, name empty folders",
        )

    def _promise(self) -> None:
        """The value of ``ack_after``, and the journal's folder if it needs one."""
        journal = (
            "journalDirectories" if "journalDirectories" in self._properties else "journalDirectory"
        )
        folders = self._properties[journal].items() if journal in self._properties else []
        for key in ("journalWriteData", "journalSyncData"):
            if self._flag(key) is False:
                self._put("ack_after", "write", key)
                self._took(
                    key,
                    'ack_after = "write": a lost host loses entries until repair brings them back',
                )
                if journal in self._properties:
                    self._remark(journal, imported=False, text='ack_after = "write" has no journal')
                return
        for key in ("journalWriteData", "journalSyncData"):
            self._took(key, 'ack_after = "journal"')
        if not folders:
            return  # Java's default would be in /tmp; ack_after = "sync" promises as much without a journal
        self._put("ack_after", "journal", journal)
        self._put("journal", folders[0], journal)
        more = "" if len(folders) == 1 else "; bkbox has one for all disks: the first is taken"
        self._took(
            journal,
            'journal, with ack_after = "journal". ack_after = "sync", the default, promises the same without one, '
            f"and writes once{more}",
        )

    def _resume(self) -> None:
        """Java uses the same share for both unless configured; bkbox then keeps its own distance between them."""
        key = "disk_usage_resume"
        self._scalar("diskUsageLwmThreshold", key, float)
        most = self._values.get("disk_usage_max", SCHEMA["disk_usage_max"].metadata["default"])
        resume = self._values.get(key, 0.0)
        if isinstance(resume, float) and isinstance(most, float) and resume >= most:
            del self._values[key]
            self._remark(
                "diskUsageLwmThreshold",
                imported=False,
                text=f"it is not below disk_usage_max, {most}",
            )

    # ---- one key ------------------------------------------------------------------------------------

    def _scalar(self, java: str, key: str, form: Callable[[str], object]) -> None:
        found = self._properties.get(java)
        if found is None or java in self._remarks:
            return
        try:
            imported = form(found.value.strip())
        except ValueError:
            self._problem(java, f"{quoted(found.value)} is not what it can be")
            return
        if imported is None:
            self._remark(java, imported=False, text=f"as here where {key} is not set")
        else:
            self._put(key, imported, java)
            self._took(java, key)

    def _text(self, java: str, key: str) -> str:
        found = self._properties.get(java)
        if found is None or not found.value.strip():
            return ""
        self._took(java, key)
        return found.value.strip()

    def _flag(self, java: str) -> bool | None:
        found = self._properties.get(java)
        if found is None:
            return None
        if found.value.strip().lower() not in ("true", "false"):
            self._problem(java, f"{quoted(found.value)} is neither true nor false")
        return found.value.strip().lower() == "true"

    def _put(self, key: str, new: object, java: str) -> None:
        try:
            checked(SCHEMA[key], new)
        except WrongValueError as error:
            self._problem(java, f"{key} here {error}")
        else:
            self._values[key] = new

    def _took(self, java: str, text: str) -> None:
        if java in self._properties:
            self._remark(java, imported=True, text=text)

    def _remark(self, java: str, *, imported: bool, text: str) -> None:
        self._remarks[java] = Remark(self._properties[java], imported, text)

    def _problem(self, java: str, text: str) -> None:
        found = self._properties.get(java)
        place = self._name if found is None else f"{self._name}:{found.line}"
        self._problems.append(f"{place}: {java}: {text}")


def _with_port(host: str) -> str:
    bare = ":" not in host or host.endswith("]")
    return join_address(host.strip("[]"), int(_ZOOKEEPER_PORT)) if bare else host


def _with_ports(uri: str) -> str:
    """Adds ZooKeeper's own port to hosts without one, as Java does."""
    prefix, hosts, rest = _parts(uri)
    if not hosts:
        return uri
    separator = "," if prefix.startswith(METADATA_STORE) else ";"
    named = (_with_port(host) for host in hosts.replace(",", ";").split(";") if host)
    return f"{prefix}{separator.join(named)}{rest}"


def _parts(uri: str) -> tuple[str, str, str]:
    """The prefix of a URI, ZooKeeper's hosts, and the rest. No hosts: the URI of something else."""
    scheme, _, rest = uri.partition(":")
    if scheme == METADATA_STORE:
        prefix = f"{METADATA_STORE}:zk:"
        rest = rest.removeprefix("zk:")
        if rest.partition(":")[0] in OTHER_STORES:
            return uri, "", ""
    elif scheme.startswith("zk") and rest.startswith("//"):
        prefix, rest = f"{scheme}://", rest[2:]
    else:
        return uri, "", ""
    hosts = re.split("[/?]", rest, maxsplit=1)[0]
    return prefix, hosts, rest[len(hosts) :]


def _true(text: str) -> bool | None:
    """True, or None for false, which is the default here as well."""
    if text.lower() not in ("true", "false"):
        raise ValueError(text)
    return True if text.lower() == "true" else None


def _seconds(text: str) -> float:
    """Converts milliseconds to seconds."""
    return int(text) / 1000


def _garbage(text: str) -> float | None:
    """Java's key is the live share at which it compacts; a value not between 0 and 1 switches that off."""
    live = float(text)
    return round(1 - live, 6) if 0 < live < 1 else None


def _positive(text: str) -> int | None:
    """A number; None for zero and less, which Java takes as 'no bound'."""
    return int(text) if int(text) > 0 else None


_SCALARS: tuple[tuple[str, str, Callable[[str], object]], ...] = (
    ("diskUsageThreshold", "disk_usage_max", float),
    ("logSizeLimit", "segment_bytes_max", int),
    ("gcWaitTime", "gc_interval_s", _seconds),
    ("gcOverreplicatedLedgerWaitTime", "gc_overreplicated_s", _seconds),
    ("majorCompactionThreshold", "compaction_garbage_ratio", _garbage),
    ("localScrubInterval", "scrub_interval_s", float),
    ("autoRecoveryDaemonEnabled", "autorecovery_enabled", _true),
    ("lostBookieRecoveryDelay", "autorecovery_lost_bookie_delay_s", int),
    ("openLedgerRereplicationGracePeriod", "autorecovery_open_ledger_grace_s", _seconds),
    ("auditorPeriodicCheckInterval", "autorecovery_full_check_interval_s", float),
    ("nettyMaxFrameSizeBytes", "frame_bytes_max", int),
    ("dataIntegrityStampMissingCookies", "auto_fix_cookies", _true),
    ("networkTopologyScriptFileName", "topology_script", str),
    ("rereplicationEntryBatchSize", "repair_entries_in_flight", int),
    ("replicationRateByBytes", "jobs_network_bytes_per_second", _positive),
)
"""Keys with the same meaning in both, and the function that converts the old value."""
