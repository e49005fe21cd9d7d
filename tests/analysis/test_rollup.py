"""Roll-ups of exposed time over the devices of one rank."""

from __future__ import annotations

from pathlib import Path

import commprof
from commprof.report.view import build_view
from tests.oracle.identities import check_identities

FIXTURE = Path(__file__).parents[2] / "fixtures" / "no-steps" / "rank0.json"


def test_a_device_without_buckets_has_its_row_where_another_device_of_the_rank_has_buckets(tmp_path: Path) -> None:
    # Given a rank whose all-reduce of bucket 0 is on device 0, its all-gather, of no bucket, on device 1.
    text = FIXTURE.read_text()
    place = text.index('"device":0', text.index("AllGather"))
    path = tmp_path / "rank0.json"
    path.write_text(text[:place] + '"device":1' + text[place + len('"device":0') :])

    # When exposed time is rolled up by bucket,
    analysis = commprof.analyze(path)
    report = build_view(analysis, commprof.diagnose(analysis))["report"]
    rows = {(row["device"], row["name"]) for row in report["exposure"] if row["by"] == "bucket"}

    # Then the all-gather is there too, under no bucket, and each roll-up adds up.
    assert rows == {(0, "0"), (1, None)}
    check_identities(report)
