"""What a card says in words: limits that no figure shows, and where the model departs from its forerunner."""

from __future__ import annotations

LIMITS = """
## What it cannot do

- It plays single notes. Chords, legato, bends and vibrato of your own are made from several notes.
- The timbre is fixed for a note's whole length; a morph is a series of notes.
- Sounds are a harmonic source and filtered noise. Partials that lie off the harmonic series, as in bells and
  stiff strings, are pulled onto it.
- It learnt from two General MIDI soundfonts, one derived from the other: it knows their piano, not the piano.
- Loudness follows the fonts' own velocity curves. The lowest velocities are almost silent, as they are there.
- What lies outside the ranges above was never trained and is refused.
"""

DEPARTURES = """
## After pGESAM, and where it departs

The model follows pGESAM (Limberg et al., DAFx 2025): a two-dimensional timbre space learnt first, then a
Transformer that writes a note's codec frames from a point and a pitch.

| | pGESAM | here |
|---|---|---|
| predicts | continuous 128-d codec vectors, by mean-squared error | codec tokens, by cross-entropy |
| variation | none | sampling with a seed: temperature, top-k, top-p |
| pitch | learnt | the fundamental is coded relative to the pitch asked |
| velocity | one | continuous |
| pitches | 25 | more than five octaves |
| length | 4 s, fixed | held for as long as asked, then a release of learned length |
| decoding | recomputes everything at each step | KV cache in a static arena, batched across requests |
| codec | EnCodec, 24 kHz | `timbrel-notes`, trained here on notes, 48 kHz |

pGESAM's own published demo notes are 75 % in tune within 50 cents by swift-f0, measured as here.
"""
