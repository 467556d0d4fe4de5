"""What is to be done for a spec, on a version of its table."""

from __future__ import annotations

from headwater.publish.indices.building import files_without_blooms
from headwater.publish.indices.decide import declared_by, missing, with_declared
from headwater.publish.optimize.decide import plan_groups
from headwater.publish.optimize.model import Plan, Purpose, Spec
from headwater.tables.files import FileReader
from headwater.tables.layout import target_file_bytes
from headwater.tables.model import ScanPlan, UnsupportedTableError


def plan_of(files: FileReader, scan: ScanPlan, spec: Spec) -> Plan:
    """The plan; footers are read where the table declares Bloom filters and they are what is wanted."""
    plan = _wanted(files, scan, spec)
    if scan.metadata.format_version < 2 and not plan.is_empty:
        raise UnsupportedTableError(
            f"{spec.table} is a table of format version 1, which is read but not written",
            hint="upgrade the table to version 2 first",
            table=str(spec.table),
        )
    return plan


def _wanted(files: FileReader, scan: ScanPlan, spec: Spec) -> Plan:
    metadata = scan.metadata
    if spec.purpose is Purpose.COMPACT:
        # What is declared wrongly must not keep a table from being compacted: `indices` says so.
        declared = declared_by(metadata, strict=False)
        groups = plan_groups(scan.tasks, spec, spec.target_size_bytes or target_file_bytes(metadata))
        return with_declared(declared, metadata, Plan(groups))
    declared = declared_by(metadata)
    bloomless = files_without_blooms(files, metadata, scan.tasks, declared.blooms.values())
    return missing(declared, metadata, scan.tasks, bloomless)
