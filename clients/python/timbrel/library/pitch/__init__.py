"""How high a note sounds, by two trackers that have nothing in common."""

from timbrel.library.pitch.trackers import Tracker, TrackerPair, find_trackers

__all__ = ["Tracker", "TrackerPair", "find_trackers"]
