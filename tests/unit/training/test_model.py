"""The note transformer: what may depend on what, and that every way of running it agrees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from timbrel_training.model import ModelConfig, ModelConfigError, NoteTransformer
from timbrel_training.model.embeddings import MASKED_LOGIT
from timbrel_training.note_training.loss import token_loss
from timbrel_training.tokens.delay import IGNORED, TokenBatch

CONFIG = ModelConfig(
    codebook_size=14,
    n_codebooks=3,
    d_model=32,
    n_heads=4,
    n_kv_heads=4,
    d_feed_forward=48,
    n_encoder_layers=1,
    n_decoder_layers=2,
    max_frames=20,
)
VARIANTS = {
    "default": {},
    "grouped": {"n_kv_heads": 2},
    "one key head": {"n_kv_heads": 1},
    "post-norm": {"norm": "post", "activation": "relu"},
    "digits": {"digit_base": 4},
    "header network": {"lead_frames": 3, "header_width": 24},
    "counted release": {"release_frames": 4},
    "wide heads": {"head_dim": 16},
}


@pytest.fixture(autouse=True)
def _repeatable() -> Iterator[None]:
    torch.set_num_threads(1)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def build(**changes: Any) -> NoteTransformer:
    """A model whose parts all matter: no weight is zero or one."""
    model = NoteTransformer(replace(CONFIG, **changes)).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.15 * torch.randn_like(parameter))
    return model


def conditions(n_notes: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    timbre = torch.rand(n_notes, 2) - 0.5
    return timbre, torch.randint(36, 97, (n_notes,)), torch.randint(1, 128, (n_notes,)).float()


def tokens(n_notes: int = 2, n_steps: int = 9) -> tuple[Tensor, Tensor]:
    drawn = torch.randint(0, CONFIG.layout.vocabulary_size, (n_notes, n_steps, CONFIG.n_codebooks))
    return drawn, torch.randint(0, 2, (n_notes, n_steps))


@torch.no_grad()
@pytest.mark.parametrize("variant", VARIANTS)
def test_steps_against_a_cache_give_the_logits_of_the_whole_sequence(variant: str) -> None:
    model = build(**VARIANTS[variant])
    given, (read, gate) = conditions(), tokens()
    expected = model(*given, read, gate)
    memories, header = model.decoder.memories(model.condition(*given)), model.header_rows(*given)
    caches = [(key + 5.0, value - 5.0) for key, value in model.empty_caches(2)]  # dirty, as a slot reused
    for step in range(read.shape[1]):
        position = torch.full((2,), step, dtype=torch.int32)
        logits, caches = model.decoder.step(
            read[:, step], gate[:, step], position, caches, memories, header=header
        )
        torch.testing.assert_close(logits, expected[:, step], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_rows_at_different_positions_do_not_disturb_each_other() -> None:
    model = build(n_kv_heads=2)
    given, (read, gate) = conditions(3), tokens(3, 12)
    expected = model(*given, read, gate)
    memories = model.decoder.memories(model.condition(*given))
    caches = model.empty_caches(3)
    rows = torch.arange(3)
    for tick in range(12 + 2 * 4):
        at = (tick - 4 * rows).clamp(0, 11)
        logits, caches = model.decoder.step(read[rows, at], gate[rows, at], at.int(), caches, memories)
        torch.testing.assert_close(logits, expected[rows, at], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_step_leaves_the_caches_it_was_given_alone() -> None:
    model = build(n_kv_heads=2)
    given, (read, gate) = conditions(1), tokens(1, 1)
    caches, memories = model.empty_caches(1), model.decoder.memories(model.condition(*given))
    position = torch.tensor([2], dtype=torch.int32)
    _, written = model.decoder.step(read[:, 0], gate[:, 0], position, caches, memories)
    for (keys, values), (new_keys, new_values) in zip(caches, written, strict=True):
        assert keys.shape == new_keys.shape == (1, 2, CONFIG.max_positions, CONFIG.width_per_head)
        assert not keys.any() and not values.any()
        for new in (new_keys, new_values):
            assert new[:, :, 2].abs().min() > 0
            assert not new[:, :, :2].any() and not new[:, :, 3:].any()


@torch.no_grad()
@pytest.mark.parametrize("n_kv_heads", [4, 1])
def test_no_step_sees_a_later_one(n_kv_heads: int) -> None:
    model = build(n_kv_heads=n_kv_heads)
    given, (read, gate) = conditions(), tokens()
    before = model(*given, read, gate)
    changed, opened = read.clone(), gate.clone()
    changed[:, 5:] = (changed[:, 5:] + 1) % CONFIG.codebook_size
    opened[:, 5:] = 1 - opened[:, 5:]
    after = model(*given, changed, opened)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert not torch.allclose(after[:, 5:], before[:, 5:])


@torch.no_grad()
@pytest.mark.parametrize("changed", ["timbre", "pitch", "velocity", "gate"])
def test_everything_asked_for_is_heard_from_the_first_step(changed: str) -> None:
    model = build()
    (timbre, pitch, velocity), (read, gate) = conditions(), tokens()
    before = model(timbre, pitch, velocity, read, gate)
    timbre = timbre + 0.3 if changed == "timbre" else timbre
    pitch = pitch + 1 if changed == "pitch" else pitch
    velocity = velocity / 2 if changed == "velocity" else velocity
    gate = 1 - gate if changed == "gate" else gate
    after = model(timbre, pitch, velocity, read, gate)
    assert (after - before).abs().amax(dim=(2, 3))[:, 0].min() > 1e-3


@torch.no_grad()
def test_heads_never_choose_what_they_may_not() -> None:
    model = build(lead_frames=2)
    logits = model(*conditions(), *tokens())
    layout = CONFIG.layout
    assert (logits[..., layout.bos_id] == MASKED_LOGIT).all()
    assert (logits[:, :, 1:, layout.eos_id] == MASKED_LOGIT).all()
    assert (logits[:, :3, 0, layout.eos_id] == MASKED_LOGIT).all()  # a note ends behind a frame that sounds
    assert (logits[:, 3:, 0, layout.eos_id] > MASKED_LOGIT / 2).all()
    assert (logits[..., : layout.codebook_size] > MASKED_LOGIT / 2).all()


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_loss_is_the_cross_entropy_of_the_targets_alone(variant: str) -> None:
    model = build(**VARIANTS[variant])
    given, (read, gate) = conditions(), tokens()
    targets = torch.randint(0, CONFIG.codebook_size, read.shape)
    targets[:, ::2, 1] = IGNORED
    targets[1, 4:] = IGNORED
    # The loss leaves EOS among the tokens where no note may end yet.
    targets[:, : model.config.lead_frames + 1, 0] = IGNORED
    loss = token_loss(model, *given, TokenBatch(read, targets, gate))
    logits = model(*given, read, gate)
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 2), targets.flatten())
    mean = loss.nats.sum() / loss.n_targets.sum()
    torch.testing.assert_close(mean, expected)
    assert loss.n_targets.sum() == (targets != IGNORED).sum()
    mean.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("n_kv_heads", [4, 2, 1])
def test_bfloat16_autocast_trains_as_float32_does(n_kv_heads: int) -> None:
    model = build(n_kv_heads=n_kv_heads)
    given, (read, gate) = conditions(), tokens()
    batch = TokenBatch(read, torch.randint(0, CONFIG.codebook_size, read.shape), gate)
    gradients = []
    for enabled in (False, True):
        model.zero_grad()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            loss = token_loss(model, *given, batch).nats.sum()
        assert loss.dtype == torch.float32
        loss.backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert torch.nn.functional.cosine_similarity(*gradients, dim=0) > 0.99


def test_embedding_and_heads_share_their_weights() -> None:
    decoder = build().decoder
    assert [name for name, _ in decoder.heads.named_parameters()] == ["bias"]
    hidden = torch.randn(CONFIG.d_model)
    position, held = torch.tensor(9), torch.tensor(True)
    before = decoder.heads(hidden, decoder.tokens, position, held)
    row = CONFIG.layout.vocabulary_size + 4  # token 4 of codebook 1
    with torch.no_grad():
        decoder.tokens.weight[row] += hidden
    changed = (decoder.heads(hidden, decoder.tokens, position, held) != before).nonzero()
    assert changed.tolist() == [[1, 4]]


def test_codes_of_the_key_say_what_the_gate_says() -> None:
    config = {"held_codes": (0, 4), "n_codebooks": 2, "lead_frames": 1, "release_frames": 3}
    model = build(**config)
    timbre, pitch, velocity = conditions()
    read, _ = tokens()
    gate = torch.tensor([3, 3, 3, 2, 1, 0])
    read = read[:, :1, :2].expand(-1, len(gate), -1)
    logits = model(timbre, pitch, velocity, read, gate.expand(len(read), -1))
    allowed = (logits > MASKED_LOGIT / 2).all(dim=0)
    codes, held = CONFIG.codebook_size, 4
    assert allowed[:3, 1].nonzero()[:, 1].unique().tolist() == list(range(held))
    assert allowed[3:, 1].nonzero()[:, 1].unique().tolist() == list(range(held, codes))
    assert allowed[:, 0, :codes].all()
    assert allowed[:, 0, CONFIG.layout.eos_id].tolist() == [False, False, True, True, True, True]


def test_a_written_note_is_let_go_at_the_beginning_of_a_frame() -> None:
    config = {"n_codebooks": 2, "release_frames": 3, "held_codes": (0, 4), "released_codes": (0, 6)}
    model = build(**config)
    timbre, pitch, velocity = conditions()
    read, _ = tokens()
    gate = torch.tensor([3, 2, 0])
    logits = model(timbre, pitch, velocity, read[:, :1, :2].expand(-1, 3, -1), gate.expand(len(read), -1))
    allowed = (logits > MASKED_LOGIT / 2).all(dim=0)
    assert [allowed[step, 1].nonzero()[:, 0].tolist() for step in range(3)] == [[0, 1, 2, 3], [4, 5], [4, 5]]
    hidden = model.hidden(timbre, pitch, velocity, read[:, :1, :2], gate[1:2].expand(len(read), -1))
    learnt = model.decoder.heads.one_codebook(hidden, model.decoder.tokens, 1)
    assert (learnt[..., : CONFIG.codebook_size] > MASKED_LOGIT / 2).all()


def test_notes_rarely_end_until_their_release_is_heard() -> None:
    def rarely_ends(release_frames: int, *gate: int) -> list[bool]:
        return build(release_frames=release_frames).decoder.rarely_ends(torch.tensor(gate)).tolist()

    assert rarely_ends(20, 20, 19, 12, 11, 0) == [True, True, True, False, False]
    assert rarely_ends(1, 1, 0) == [True, False]
    assert rarely_ends(4, 4, 1, 0) == [True, True, False]


def test_codes_that_share_a_digit_share_what_is_learnt() -> None:
    model = build(digit_base=4)
    timbre, pitch, velocity = conditions()
    read, gate = tokens()
    plain = model.with_plain_embeddings()
    assert "decoder.tokens.weight" in plain.state_dict() and plain.config == CONFIG
    expected = model(timbre, pitch, velocity, read, gate)
    torch.testing.assert_close(plain(timbre, pitch, velocity, read, gate), expected)
    logits = model(timbre, pitch, velocity, read, gate)[0, 0, 1]
    model.zero_grad()
    logits[6].backward()  # the code 12 in base 4
    (own, tables) = (parameter.grad for parameter in model.decoder.tokens.parameters())
    assert own is not None and tables is not None
    touched = {(int(digit), int(value)) for digit, value in tables[:, 1].abs().sum(dim=2).nonzero()}
    assert {(0, 2), (1, 1)} <= touched


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"n_kv_heads": 3}, "n_kv_heads"),
        ({"n_heads": 5, "n_kv_heads": 5}, "head_dim"),
        ({"n_encoder_layers": 0}, "n_encoder_layers is 0; it must be at least 1"),
        ({"norm": "none"}, "norm is 'none'; it must be one of pre, post"),
        ({"n_decoder_layers": 0}, "n_decoder_layers"),
        ({"dropout": 1.0}, "dropout"),
        ({"digit_base": 1}, "digit_base is 1; it must be 0 or at least 2"),
        ({"release_frames": 0}, "release_frames is 0; it must be at least 1"),
        ({"held_codes": (0, 4)}, "held_codes is .0, 4.; it must have 3 numbers"),
        ({"n_codebooks": 1, "held_codes": (4,), "released_codes": (4,)}, "must be above that of held_codes"),
    ],
)
def test_shapes_that_cannot_be_built_are_refused_by_name(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ModelConfigError, match=named):
        replace(CONFIG, **changes)


def test_the_condition_tells_near_points_and_velocities_apart() -> None:
    torch.manual_seed(0)
    plain = NoteTransformer(CONFIG).eval()
    waved = NoteTransformer(replace(CONFIG, n_timbre_waves=32, n_velocity_waves=16)).eval()

    def moved(model: NoteTransformer, timbre: tuple[float, float], velocity: float) -> float:
        """By how much of its length the memory changes between (0.4, 0.4) at 60 and this."""
        pitch = torch.tensor([60])
        here = model.condition(torch.tensor([[0.4, 0.4]]), pitch, torch.tensor([60.0]))
        there = model.condition(torch.tensor([timbre]), pitch, torch.tensor([velocity]))
        return float((here - there).norm() / here.norm())

    with torch.no_grad():
        # Farther out in the same direction; and a harder touch.
        assert moved(waved, (0.6, 0.6), 60.0) > 2 * moved(plain, (0.6, 0.6), 60.0)
        assert moved(waved, (0.4, 0.4), 90.0) > 2 * moved(plain, (0.4, 0.4), 90.0)
        assert moved(waved, (0.401, 0.4), 60.0) < 0.02
