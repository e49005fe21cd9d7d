"""What only all ranks together can tell, in the order in which each part needs the ones before it."""

from __future__ import annotations

from dataclasses import dataclass

from commprof.analysis.bandwidth import find_bandwidth
from commprof.analysis.bucket_advice import advise_buckets
from commprof.analysis.charges import find_charges
from commprof.analysis.clock_notes import clock_notes, message_clock_note
from commprof.analysis.clocks import align_clocks
from commprof.analysis.critical_path import find_critical_path
from commprof.analysis.fusedwait import set_fused_waits
from commprof.analysis.hardware import choose_hardware
from commprof.analysis.hosts import find_hosts, read_hosts
from commprof.analysis.imbalance import find_imbalance
from commprof.analysis.late_on_path import apart
from commprof.analysis.matching import match_calls
from commprof.analysis.message_clocks import joined_by_messages
from commprof.analysis.model import Analysis, Note
from commprof.analysis.odd_ranks import few_cores, incomplete_ranks
from commprof.analysis.pairing import steps_carried_on
from commprof.analysis.parallelism import find_parallelism
from commprof.analysis.peer_waits import refine_with_waits
from commprof.analysis.peers import find_peers
from commprof.analysis.pipeline import find_pipeline
from commprof.analysis.stragglers import find_stragglers
from commprof.analysis.wait_chain import find_wait_chain
from commprof.analysis.waiting import call_waits, match_times
from commprof.analysis.what_if import FEWEST_STEPS, LARGEST_ERROR, replay_of

_NOT_REPLAYED = (
    f"The run was not replayed without slow ranks: that needs all ranks on clocks that can be compared, {FEWEST_STEPS} "
    f"closed steps, and a replay whose steps are within {LARGEST_ERROR:.0%} of the time of the run."
)


@dataclass(frozen=True, slots=True)
class AnalysisOptions:
    """What a user says about the run that its traces do not.

    ``hosts`` is a file with the host of every rank, ``hardware`` the name of a machine or a file that describes one.
    """

    hosts: str | None = None
    hardware: str | None = None

    def check(self) -> None:
        """Refuse what cannot be used, before anything is read; raises :class:`~commprof.errors.InputRefused`."""
        if self.hosts is not None:
            read_hosts(self.hosts)
        if self.hardware is not None:
            choose_hardware(self.hardware, ())


def across(analysis: Analysis, options: AnalysisOptions) -> None:
    """Fill in every part of ``analysis`` that compares ranks or groups; a part that cannot speak adds a note."""
    hosts = analysis.hosts = find_hosts(analysis, options.hosts)
    analysis.hardware = choose_hardware(options.hardware, (rank.device_name for rank in analysis.ranks))
    find_parallelism(analysis)
    analysis.matching = match_calls(analysis, incomplete_ranks(analysis))
    few_cores(analysis)
    analysis.clocks = align_clocks(analysis.matching, [hosts.get(rank.rank) for rank in analysis.ranks])
    clock_notes(analysis, analysis.clocks, analysis.matching.calls)
    analysis.times = match_times(analysis, analysis.matching, analysis.clocks)
    analysis.waiting = call_waits(analysis, analysis.matching, analysis.times)
    analysis.pipeline = find_pipeline(analysis)
    refine_with_waits(analysis)
    analysis.bandwidth = find_bandwidth(analysis, analysis.waiting, hosts, analysis.hardware)
    analysis.bucket_advice = advise_buckets(analysis)
    set_fused_waits(analysis)
    _find_late(analysis)
    if analysis.what_if is None:
        analysis.notes.append(Note("not-built", _NOT_REPLAYED))


def _find_late(analysis: Analysis) -> None:
    """Who made the others wait, and why; needs more than one rank."""
    found, times, clocks = analysis.matching, analysis.times, analysis.clocks
    if len(analysis.ranks) < 2 or found is None or times is None or clocks is None or not len(found):
        return
    analysis.imbalance = find_imbalance(analysis, found, times)
    step = steps_carried_on(found.calls)
    peers = find_peers(found.calls, step)
    analysis.charges = find_charges(analysis, found, times, clocks, peers, step)
    replay = replay_of(analysis, found, times, clocks, peers)
    path = analysis.critical_path = find_critical_path(analysis, found, clocks, peers)
    late = find_stragglers(analysis, found, times, analysis.charges, peers, analysis.hosts)
    analysis.stragglers, analysis.harmless = apart(analysis, late, analysis.charges, path)
    if path is None:
        places = {analysis.hosts.get(rank.rank) for rank in analysis.ranks}
        one_host = len(places) == 1 and None not in places
        joined = joined_by_messages(found, clocks, one_host=one_host)
        if joined is not None:
            analysis.critical_path = find_critical_path(analysis, found, joined, peers)
        if joined is not None and analysis.critical_path is not None:
            analysis.message_clocks = None if one_host else joined
            message_clock_note(analysis, joined, one_host=one_host)
    analysis.wait_chain = find_wait_chain(analysis, found, analysis.charges, peers)
    analysis.what_if = None if replay is None else replay.without_slow_ranks()
