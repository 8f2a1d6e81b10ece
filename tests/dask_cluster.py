"""A Dask cluster of its own processes, until standard input ends: tests start this as a script."""

from __future__ import annotations

import sys

from distributed import LocalCluster


def main(workers: int, processes: bool) -> None:
    cluster = LocalCluster(  # type: ignore[no-untyped-call]
        n_workers=workers,
        threads_per_worker=1,
        processes=processes,
        protocol="tcp",
        dashboard_address=None,
    )
    print(cluster.scheduler_address, flush=True)
    sys.stdin.read()
    cluster.close()


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2] == "processes")
