"""What this report cannot say, and what it would take: one line for each part that the input does not give."""

from __future__ import annotations

from commprof.report.charts.wording import Json, micro_steps

_NEEDS_RANKS = "It needs the traces of all ranks of one run."


def unsaid(report: Json) -> list[str]:
    """Lines in the order of the report's sections; parts that do not apply to the run have none."""
    run = report["input"]
    strategy = (report.get("strategy") or {}).get("name") or ""
    parts = set(strategy.split("+"))
    communicates = bool(report["groups"])
    lines: list[str] = []
    if not communicates:
        return lines
    if not report.get("matching") or not report["matching"].get("matched"):
        lines.append(f"How much of communication is waiting and how much is transfer, and who is late. {_NEEDS_RANKS}")
    if not run["hardware"].get("name"):
        lines.append(
            "How close bandwidth comes to what the hardware can do: the machine is not known. Name it with --hardware."
        )
    if all(row.get("crosses_hosts") is None for row in report["groups"]) and (run["world_size"] or 1) > 1:
        lines.append(
            "Which process groups cross hosts: the trace does not say where ranks run. Give a list with --hosts."
        )
    if any(row["exposed_host_ns"] is None for rank in report["ranks"] for row in (rank["mean"],) if row):
        lines.append(
            "How much of it the CPU caused: nothing links kernels to their launches (a trace with CPU activity does)."
        )
    if strategy in ("", "unknown"):
        lines.append("Which parallel strategy this is, and so how many bytes it should send.")
    if "ddp" in parts and not report.get("buckets"):
        lines.append("When each gradient bucket was ready, launched and done.")
    if parts & {"fsdp", "hsdp", "zero3"} and not report.get("units"):
        lines.append("When each layer was gathered and needed.")
    if "pp" in parts and not report.get("pipeline"):
        lines.append("How large the pipeline bubble is.")
    if not any(row["by"] == "module" and row["name"] for row in report["exposure"] or []):
        lines.append("Which layer the communication belongs to: capture with a model, or with_stack, names layers.")
    if micro_steps(report):
        lines.append("The cost of a single micro-step: means are over optimizer steps.")
    return lines
