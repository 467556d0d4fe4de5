"""Runs the benchmarks, prints the table, writes `bench/results.json`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from bench import (
    catalog,
    copying,
    ingest_flink,
    ingest_index,
    ingest_merge,
    ingest_scan,
    load,
    localise,
    publish,
    query,
    sequence,
    server,
    tables,
)
from bench.measure import Result

BENCHMARKS: dict[str, Callable[[], list[Result]]] = {
    "sequence-guarded-file": sequence.guarded_on_file,
    "sequence-guarded-s3": sequence.guarded_on_s3,
    "sequence-history-memory": sequence.history_in_memory,
    "sequence-history-file": sequence.history_on_file,
    "catalog-tables-file": catalog.tables_on_file,
    "tables-manifests": tables.thousand_manifests,
    "query-scan": query.scans,
    "load-files": load.loads,
    "publish-five-tables": publish.five_tables_on_file,
    "publish-step": publish.step_on_file,
    "publish-clients": publish.clients_on_s3,
    "server-five-tables": server.five_tables,
    "server-nessie": server.loads_and_appends,
    "localise-table": localise.whole_table,
    "localise-commit": localise.one_more_commit,
    "localise-memory": localise.driver_memory,
    "copy-buckets": copying.buckets,
    "ingest-index": ingest_index.ten_times_the_keys,
    "ingest-merge-1k": ingest_merge.merge_1k,
    "ingest-merge-100k": ingest_merge.merge_100k,
    "ingest-more-keys": ingest_merge.more_keys,
    "ingest-visible": ingest_merge.visible,
    "ingest-scan": ingest_scan.scans,
    "ingest-flink": ingest_flink.upserts,
}
RESULTS = Path(__file__).parent / "results.json"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", choices=sorted(BENCHMARKS), help="run this one alone")
    only = parser.parse_args().only
    for name in ("NO_PROXY", "no_proxy"):  # the servers are on this machine
        os.environ[name] = ",".join(filter(None, [os.environ.get(name), "127.0.0.1", "localhost"]))
    results: list[Result] = []
    print(f"{'name':36} {'ours':>10} {'peer':>10} {'ratio':>7} {'goal':>6}  holds", flush=True)
    for name, run in BENCHMARKS.items():
        if only in (None, name):
            for result in run():
                results.append(result)
                print(_line(result), flush=True)
    RESULTS.write_text(json.dumps([{**asdict(each), "holds": each.holds} for each in results], indent=2) + "\n")
    return 0 if all(each.holds for each in results) else 1


def _line(result: Result) -> str:
    verdict = "yes" if result.holds else "NO"
    return (
        f"{result.name:36} {result.ours:10.1f} {result.peer:10.1f} {result.ratio:7.2f} {result.goal:6.2f}  "
        f"{verdict:4} ({result.unit})"
    )


if __name__ == "__main__":
    sys.exit(main())
