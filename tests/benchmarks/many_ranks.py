"""Peak memory of 8 and of 64 rank files with the same number of workers (C025).

    python -m tests.benchmarks.many_ranks --traces FOLDER

Each rank file is the public trace ``ddp-resnet50-a100`` (9.8 MB of JSON) with its rank changed. Memory is summed over
all processes of the run. Writes ``reports/records/many-ranks.md``.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.read_large import SOURCE, Measured, measure

RECORD = Path(__file__).parents[2] / "reports" / "records" / "many-ranks.md"
WORKERS = 2


def write_ranks(source: bytes, folder: Path, world: int) -> None:
    """The same trace as every rank of a world."""
    folder.mkdir()
    for rank in range(world):
        text = re.sub(rb'"rank": \d+', b'"rank": %d' % rank, source, count=1)
        text = re.sub(rb'"world_size": \d+', b'"world_size": %d' % world, text, count=1)
        (folder / f"rank{rank}.json.gz").write_bytes(gzip.compress(text, 1))


def main() -> None:
    """Measure both sizes and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=Path, required=True)
    source = gzip.decompress((parser.parse_args().traces / SOURCE).read_bytes())
    figures: dict[int, Measured] = {}
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    with tempfile.TemporaryDirectory() as scratch:
        for world in (8, 64):
            folder = Path(scratch) / f"ranks{world}"
            write_ranks(source, folder, world)
            out = ["-o", f"{scratch}/r.html", "--json", f"{scratch}/r.json", "--jobs", str(WORKERS)]
            figures[world] = measure([sys.executable, "-m", "commprof", "analyze", str(folder), *out], environment)
            print(world, figures[world])
    ratio = figures[64].memory / figures[8].memory
    RECORD.write_text(
        "# Memory of many ranks\n\nRemade by `python -m tests.benchmarks.many_ranks --traces FOLDER`: "
        f"`commprof analyze --jobs {WORKERS}`, memory summed over all processes.\n\n"
        "| ranks | wall s | CPU s | peak memory MB |\n| --- | --- | --- | --- |\n"
        + "".join(f"| {n} | {f.wall:.1f} | {f.cpu:.1f} | {f.memory:.0f} |\n" for n, f in figures.items())
        + f"\n64 against 8 ranks: {ratio:.2f} (mark: at most 1.5).\n",
        encoding="utf-8",
    )
    print(RECORD.read_text(encoding="utf-8"))


if __name__ == "__main__":
    main()
