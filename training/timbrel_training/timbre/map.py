"""The timbre map as files: a point per instrument, a point per note, and a picture of both.

timbre_map.json    {"points": [{instrument, family, x, y, pitch_min, pitch_max}, ..]}: what a bundle ships
note_timbres.npy   float32 [N, 2], in the token store's order
map.png            both drawn, where matplotlib is installed
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from timbrel_training.checkpoint import replace_file
from timbrel_training.errors import CheckpointError
from timbrel_training.notes.split import Split
from timbrel_training.tokens.table import TokenTable

ENCODER = "timbre_encoder"
"""Name of the encoder's weights in a stage-1 folder."""
MAP_FILE = "timbre_map.json"
NOTES_FILE = "note_timbres.npy"
PICTURE_FILE = "map.png"

LEAST_SPREAD = 1e-7
"""What spreads by less does not spread: float32 says no more of a point."""

Points = NDArray[np.float32]


@dataclass(frozen=True)
class MapPoint:
    """An instrument's place: the fields of the TimbrePoint message."""

    instrument: str
    family: str
    x: float
    y: float
    pitch_min: int  # MIDI note number, lowest in training
    pitch_max: int  # highest


@dataclass(frozen=True)
class TimbreMap:
    """A point per instrument that has training notes, in the token store's order."""

    points: tuple[MapPoint, ...]

    @classmethod
    def from_places(cls, places: Points, table: TokenTable) -> TimbreMap:
        """Takes the places [n_points, 2] of the instruments that have training notes."""
        training = table.split == int(Split.TRAIN)
        found = []
        for (x, y), index in zip(places, np.unique(table.instrument[training]), strict=True):
            pitches = table.pitch[training & (table.instrument == index)]
            reach = int(pitches.min()), int(pitches.max())
            inside = max(1.0, float(np.hypot(x, y)) * (1 + 1e-6))  # rounding may have put it outside the disc
            name, family = table.instruments[index], table.families[index]
            found.append(MapPoint(name, family, float(x) / inside, float(y) / inside, *reach))
        return cls(tuple(found))

    @property
    def centroids(self) -> Points:
        """float32 [n_points, 2]."""
        return np.array([(point.x, point.y) for point in self.points], dtype=np.float32).reshape(-1, 2)

    @property
    def spacing(self) -> float:
        """Median over instruments of the distance to the nearest other one; 1 for a single instrument."""
        return float(np.median(self.spacings))

    @property
    def spacings(self) -> NDArray[np.float64]:
        """[n_points], from each point to the nearest other one; 1 for a single instrument."""
        return _nearest(self.centroids) if len(self.points) > 1 else np.ones(len(self.points))

    def index_of(self, table: TokenTable) -> NDArray[np.int64]:
        """Returns int64 [M]: the point of each of the table's instruments, -1 where the map has none."""
        names = {point.instrument: index for index, point in enumerate(self.points)}
        return np.array([names.get(name, -1) for name in table.instruments], dtype=np.int64)


@dataclass(frozen=True)
class MapFigures:
    """Figures of a map's quality."""

    accuracy: float  # share of held-out notes whose nearest centroid is their own instrument's
    training_accuracy: float  # the same of training notes
    spacing: float  # median distance from a centroid to the nearest other one
    smallest_spacing: float  # distance of the two nearest centroids
    spread: float  # median over instruments of the RMS distance of held-out notes from their centroid
    separation: float  # spacing / spread
    pitch_correlation: float  # largest absolute correlation of a coordinate with pitch, within instruments


def measure(points: Points, chart: TimbreMap, table: TokenTable) -> MapFigures:
    """Measures where notes are put [N, 2] against where their instruments lie.

    Spread and accuracy are of held-out cells, or of the training notes where nothing is held out.
    """
    centroids = chart.centroids
    target = chart.index_of(table)[table.instrument]  # [N]
    distances = np.linalg.norm(points[:, None] - centroids[None], axis=2)  # [N, n_points]
    right = distances.argmin(axis=1) == target
    training = table.split == int(Split.TRAIN)
    held_out = (table.split == int(Split.HELD_OUT_CELL)) & (target >= 0)
    judged = held_out if held_out.any() else training
    own = distances[np.arange(len(points)), target]
    spreads = [
        float(np.sqrt(np.mean(own[judged & (target == index)] ** 2)))
        for index in range(len(centroids))
        if (judged & (target == index)).any()
    ]
    spacing = chart.spacing
    spread = float(np.median(spreads))
    return MapFigures(
        accuracy=float(right[judged].mean()),
        training_accuracy=float(right[training].mean()),
        spacing=spacing,
        smallest_spacing=float(_nearest(centroids).min()) if len(centroids) > 1 else 1.0,
        spread=spread,
        separation=spacing / max(spread, 1e-9),
        pitch_correlation=_pitch_correlation(points[judged], target[judged], table.pitch[judged]),
    )


def write_map(folder: Path, chart: TimbreMap, points: Points, table: TokenTable) -> None:
    """Writes timbre_map.json, note_timbres.npy and, where matplotlib is installed, map.png into `folder`."""
    replace_file(folder / NOTES_FILE, lambda path: _save_array(path, points.astype(np.float32)))
    write_chart(folder, chart)
    draw_map(folder / PICTURE_FILE, chart, points, table)


def write_chart(folder: Path, chart: TimbreMap) -> None:
    """Writes timbre_map.json alone."""
    text = json.dumps(asdict(chart), indent=2) + "\n"
    replace_file(folder / MAP_FILE, lambda path: path.write_text(text, encoding="utf-8"))


def read_map(folder: Path) -> tuple[TimbreMap, Points]:
    """Reads the map and the notes' points of a stage-1 folder. Raises CheckpointError: missing or damaged
    files."""
    chart = read_chart(folder)
    try:
        points = np.load(folder / NOTES_FILE).astype(np.float32)
        if points.shape != (len(points), 2) or not np.isfinite(points).all():
            raise ValueError(f"{NOTES_FILE} holds no points")
        return chart, points
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{folder}: no notes' points ({error.filename}); train stage 1 first"
        ) from error
    except Exception as error:  # numpy reads what begins a file as Python, and raises what that runs into
        raise CheckpointError(f"{folder}: damaged timbre map ({error})") from error


def read_chart(folder: Path) -> TimbreMap:
    """Reads the map of a stage-1 folder alone. Raises CheckpointError: missing or damaged."""
    try:
        data = json.loads((folder / MAP_FILE).read_text(encoding="utf-8"))
        chart = TimbreMap(tuple(MapPoint(**point) for point in data["points"]))
        if not all(math.isfinite(point.x + point.y) for point in chart.points):
            raise ValueError("a point lies nowhere")
        return chart
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder}: no timbre map ({error.filename}); train stage 1 first") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{folder}: damaged timbre map ({error})") from error


def map_hash(folder: Path) -> str:
    """Returns the SHA-256, in hex, of the map of a stage-1 folder. Raises CheckpointError: there is none."""
    try:
        return hashlib.sha256((folder / MAP_FILE).read_bytes()).hexdigest()
    except OSError as error:
        raise CheckpointError(f"{folder}: no timbre map ({error.filename}); train stage 1 first") from error


def draw_map(path: Path, chart: TimbreMap, points: Points, table: TokenTable) -> None:
    """Draws a picture of the map: notes as dots, instruments by name, one colour per family."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return
    from matplotlib import colormaps, style

    families = sorted({point.family for point in chart.points})
    colours = {family: colormaps["tab20"](index % 20) for index, family in enumerate(families)}
    turn = np.linspace(0, 2 * np.pi, 200)
    of_note = [colours.get(table.families[index], "0.5") for index in table.instrument]
    with style.context("default"):  # whatever its user's are: LaTeX for every text, say
        figure = Figure(figsize=(10, 10), layout="constrained")
        axes = figure.add_subplot(aspect="equal")
        axes.plot(np.cos(turn), np.sin(turn), color="0.7", linewidth=1)
        axes.scatter(points[:, 0], points[:, 1], s=3, c=of_note, alpha=0.35, linewidths=0)
        for point in chart.points:
            axes.plot(point.x, point.y, "o", color=colours[point.family], markeredgecolor="black")
            place, name = (point.x, point.y), _literal(point.instrument)
            axes.annotate(name, place, (3, 3), textcoords="offset points", fontsize=7)
        for family in families:
            axes.plot([], [], "o", color=colours[family], label=_literal(family))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
        axes.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05), title="timbre map")
        replace_file(path, lambda temporary: figure.savefig(temporary, dpi=100, format="png"))


def _literal(text: str) -> str:
    """The text for matplotlib, which takes what stands between dollars for mathematics."""
    return text.replace("$", r"\$")


def _save_array(path: Path, array: NDArray[np.float32]) -> None:
    with path.open("wb") as file:  # by name, numpy would append .npy
        np.save(file, array)


def gaps(points: Points, others: Points) -> NDArray[np.float64]:
    """Measures the distance of each point [n, 2] to the nearest of the others [m, 2]; infinite if m is 0."""
    distances = np.linalg.norm(points[:, None].astype(np.float64) - others[None], axis=2)
    return distances.min(axis=1, initial=np.inf)


def _nearest(centroids: Points) -> NDArray[np.float64]:
    """Returns the distance of each centroid [C, 2] to its nearest neighbour."""
    distances = np.linalg.norm(centroids[:, None] - centroids[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    return distances.min(axis=1)


def _pitch_correlation(points: Points, instrument: NDArray[np.int64], pitch: NDArray[np.int64]) -> float:
    """Returns the largest absolute correlation of a coordinate of `points` [N, 2] with the pitch [N], of what
    departs from the mean of each instrument [N]."""
    number = np.unique(instrument, return_inverse=True)[1]
    values = np.column_stack([points, pitch]).astype(np.float64)
    sums = np.zeros((int(number.max()) + 1, 3))
    np.add.at(sums, number, values)
    values -= (sums / np.bincount(number)[:, None])[number]
    if len(pitch) < 3 or (values.std(axis=0) < LEAST_SPREAD).any():
        return 0.0
    return max(abs(float(np.corrcoef(values[:, axis], values[:, 2])[0, 1])) for axis in (0, 1))
