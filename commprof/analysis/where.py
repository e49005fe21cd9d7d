"""Where in the step a rank communicates, and why its communication is exposed: all that needs its columns."""

from __future__ import annotations

from dataclasses import dataclass

from commprof.analysis.phases import find_phases, phases_of_calls
from commprof.analysis.places import CallPlaces, PieceCauses, no_causes, no_places
from commprof.analysis.scene import Scene


@dataclass(slots=True, eq=False)
class Where:
    """Places of the calls and causes of the pieces of one rank."""

    places: CallPlaces
    causes: PieceCauses


def locate(scene: Scene) -> Where:
    """Find the place of every call and the cause of every piece of exposed time."""
    places = no_places(len(scene.calls))
    phases = find_phases(scene)
    places.phase = phases_of_calls(phases, scene)
    return Where(places, no_causes(len(scene.shares.pieces)))
