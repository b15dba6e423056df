"""The metadata store on Oxia, in the records that Pulsar's driver ``metadata-store:oxia:`` uses."""

from bkbox.metadata.oxia.store import OxiaStore, init_cluster

__all__ = ["OxiaStore", "init_cluster"]
