"""The .dspreset file: XML that Decent Sampler plays."""

from __future__ import annotations

from xml.etree import ElementTree

from timbrel.library.region import Region, SamplerInstrument


def dspreset_text(instrument: SamplerInstrument) -> str:
    """The whole file: one group, in which every sample states its zones, its tuning and its loop."""
    root = ElementTree.Element("DecentSampler", minVersion="1.0.0")
    root.append(ElementTree.Comment(f" {instrument.name}. {instrument.comment} ".replace("--", "-")))
    group = ElementTree.SubElement(
        ElementTree.SubElement(root, "groups"),
        "group",
        ampVelTrack=f"{instrument.velocity_tracking / 100:g}",
        attack="0",
        decay="0",
        sustain="1",
        release=f"{instrument.release_seconds:.3f}",
    )
    if instrument.round_robins > 1:
        group.set("seqMode", "round_robin")
        group.set("seqLength", str(instrument.round_robins))
    for region in instrument.regions:
        ElementTree.SubElement(group, "sample", _attributes(region, instrument.round_robins))
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"


def _attributes(region: Region, round_robins: int) -> dict[str, str]:
    attributes = {
        "path": region.file,
        "rootNote": str(region.pitch),
        "loNote": str(region.keys[0]),
        "hiNote": str(region.keys[1]),
        "loVel": str(region.velocities[0]),
        "hiVel": str(region.velocities[1]),
        "tuning": f"{region.tune / 100:.2f}",
        "loopEnabled": "false" if region.loop is None else "true",
    }
    if round_robins > 1:
        attributes["seqPosition"] = str(region.round_robin)
    if region.loop is not None:
        attributes["loopStart"], attributes["loopEnd"] = str(region.loop[0]), str(region.loop[1])
    return attributes
