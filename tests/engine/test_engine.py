"""Tokens, sessions, sampling, generation and scores, on a scripted device."""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.artifacts import TOKENIZER_JSON, VOCAB, tiny_contents
from tests.support.devices import ScriptedDevice, scripted
from wordline.artifact import Artifact, TokenizerInfo, open_artifact, write_artifact
from wordline.engine import Sampler, Sampling, Session, Tokenizer, Want, generate, score
from wordline.errors import WordlineError
from wordline.runtime import Residency, ResidentModel

F32 = npt.NDArray[np.float32]


def counting(token: int, position: int) -> F32:
    """The next token is the next number; logits are exact in bf16."""
    logits = np.zeros(VOCAB, np.float32)
    logits[(token + 1) % 16] = 4.0
    logits[(token + 3) % 16] = 2.0
    return logits


@pytest.fixture(scope="module")
def artifact(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return open_artifact(write_artifact(tmp_path_factory.mktemp("engine") / "tiny.wl", tiny_contents()))


@pytest.fixture
def resident(artifact: Artifact) -> tuple[ResidentModel, ScriptedDevice]:
    device, script = scripted(artifact.machine, counting)
    return Residency(device).acquire(artifact), script


def tokenizer_with(tmp_path: Path, **changes: Any) -> Tokenizer:
    info = dataclasses.replace(TokenizerInfo(None, None, (15,), False), **changes)
    return Tokenizer(open_artifact(write_artifact(tmp_path / "t.wl", tiny_contents(tokenizer=info))))


# Tokenizer


def test_text_comes_in_whole_characters(artifact: Artifact) -> None:
    tokenizer = Tokenizer(artifact)
    assert tokenizer.encode("ab éc") == [0, 1, 18, 16, 17, 2]
    stream = tokenizer.stream()
    assert [stream.push(t) for t in (0, 18, 16, 17, 2)] == ["a", " ", "", "é", "c"]
    assert stream.finish() == ""


def test_an_incomplete_character_at_the_end_shows_as_such(artifact: Artifact) -> None:
    stream = Tokenizer(artifact).stream()
    assert stream.push(0) + stream.push(16) == "a"
    assert stream.finish() == "\ufffd"


@given(st.lists(st.integers(0, VOCAB - 1), max_size=30))
def test_streamed_text_is_the_text(artifact: Artifact, tokens: list[int]) -> None:
    tokenizer = Tokenizer(artifact)
    stream = tokenizer.stream()
    pieces = [stream.push(t) for t in tokens]
    assert "".join(pieces) + stream.finish() == tokenizer.decode(tokens)


def test_chat_templates_are_rendered_as_transformers_does(tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}\n  {{ m['role'] }}:{{ m['content'] | tojson }}{{ eos_token }}\n"
        "{% endfor %}{% if add_generation_prompt %}a{% endif %}"
    )
    tokenizer = tokenizer_with(tmp_path, chat_template=template)
    assert tokenizer.render_chat([{"role": "user", "content": "é<"}]) == '  user:"é<"p\na'


def test_a_chat_template_can_refuse(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, chat_template="{{ raise_exception('only two roles') }}")
    with pytest.raises(WordlineError, match="refuses the conversation: only two roles"):
        tokenizer.encode_chat([{"role": "x", "content": "y"}])


def test_a_chat_template_cannot_reach_the_process(tmp_path: Path) -> None:
    tokenizer = tokenizer_with(tmp_path, chat_template="{{ ''.__class__.__mro__[1].__subclasses__() }}")
    with pytest.raises(WordlineError, match="refuses the conversation"):
        tokenizer.encode_chat([{"role": "user", "content": "y"}])


def test_a_model_without_a_template_says_so(artifact: Artifact) -> None:
    with pytest.raises(WordlineError, match="was not trained to answer") as caught:
        Tokenizer(artifact).encode_chat([{"role": "user", "content": "a"}])
    assert "leave out --chat" in str(caught.value)


def test_a_broken_tokenizer_is_a_corrupt_artifact(tmp_path: Path) -> None:
    broken = open_artifact(write_artifact(tmp_path / "b.wl", tiny_contents(tokenizer_json=TOKENIZER_JSON[:-9])))
    with pytest.raises(WordlineError, match=r"tokenizer\.json cannot be used") as caught:
        Tokenizer(broken)
    assert caught.value.code == "corrupt-artifact"


# Session


def test_steps_give_tokens_logits_and_cycles(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    model, script = resident
    with Session(model) as session:
        first = session.step(5, Want.NOTHING)
        assert (first.next_token, first.logits, first.cycles) == (None, None, 1000)
        second = session.step(6, Want.NEXT)
        assert (second.next_token, second.logits, second.cycles, second.position) == (7, None, 1001, 1)
        third = session.step(7, Want.LOGITS)
        assert third.next_token == 8
        assert third.logits is not None
        assert (third.logits == counting(7, 2)).all()
    assert [entry for entry in script.log if entry[0] == "execute"] == [
        ("execute", 5, 0, 0),
        ("execute", 6, 1, 1),
        ("execute", 7, 2, 3),
    ]


def test_pages_are_allocated_on_demand_zeroed_and_named(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    """2 layers, 1 KV head, 256 tokens a page of 32 rows, 2 channels: page p of the head is on channel p % 2."""
    model, script = resident
    session = Session(model)
    for position in range(600):
        session.step(position % 16, Want.NOTHING)
    zeroed = [entry for entry in script.log if entry[0] == "zero"]
    assert zeroed == [("zero", 2, 64, 1), ("zero", 2, 64, 2), ("zero", 66, 64, 1)]
    table = script.page_table(session._table_base, 8)
    #        layer 0: page 0, 1, 2, -     layer 1
    assert table == [2, 2, 66, 0, 34, 34, 98, 0]
    assert model.pages.free_pages(0) == model.pages.pages_per_channel - 4
    session.close()
    session.close()
    assert model.pages.free_pages(0) == model.pages.pages_per_channel


def test_sessions_share_the_model_and_not_the_cache(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    model, script = resident
    with Session(model) as a, Session(model) as b:
        assert a.step(1).next_token == 2
        assert b.step(5).next_token == 6
        assert a.step(2).position == 1
        tables = [script.page_table(s._table_base, 8) for s in (a, b)]
    assert not set(tables[0]) & set(tables[1]) - {0}
    assert [e for e in script.log if e[0] == "write"] == [("write", 0, 2)]


def test_the_end_of_the_context_is_an_error(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    model, _ = resident
    with Session(model, context=3) as session:
        for _ in range(3):
            session.step(0)
        with pytest.raises(WordlineError, match="reached its context of 3 tokens"):
            session.step(0)
    with pytest.raises(WordlineError, match="compiled for 1 to 1000"):
        Session(model, context=1001)


@pytest.mark.parametrize("token", [-1, VOCAB])
def test_tokens_outside_the_vocabulary(resident: tuple[ResidentModel, ScriptedDevice], token: int) -> None:
    with Session(resident[0]) as session, pytest.raises(WordlineError, match="outside the vocabulary of 20"):
        session.step(token)


def test_a_reset_loses_the_session_and_nothing_else(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    model, _ = resident
    session = Session(model)
    session.step(1)
    model.device.reset()
    with pytest.raises(WordlineError, match="the device was reset since") as caught:
        session.step(2)
    assert caught.value.code == "session-lost"
    session.close()
    with Session(model) as again:
        assert again.step(1).next_token == 2


def test_a_fault_in_a_step_names_its_place(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    model, script = resident
    script.fail_at = 1
    session = Session(model)
    session.step(1)
    with pytest.raises(WordlineError, match="row 99999") as caught:
        session.step(2)
    assert caught.value.where == "stream 1, channel 2, instruction 3"


def test_memory_runs_out_with_an_error_and_nothing_is_lost(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    model, _ = resident
    hoard = model.pages.allocate([model.pages.free_pages(0), 0])
    with Session(model) as session:
        with pytest.raises(WordlineError, match="2 more KV pages are needed on channel 0, 0 of"):
            session.step(1)
        model.pages.free([(0, row) for row in hoard[0]])
        assert session.step(1).next_token == 2


# Sampling


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"temperature": -0.1}, "temperature is -0.1"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_k": -1}, "top-k is -1"),
        ({"top_p": 0.0}, "top-p is 0.0"),
        ({"top_p": 1.1}, "top-p is 1.1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_wrong_sampling_options(values: dict[str, Any], words: str) -> None:
    with pytest.raises(WordlineError, match=words) as caught:
        Sampling(**values)
    assert caught.value.remedy


def test_draws_follow_the_distribution() -> None:
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125], np.float32))
    sampler = Sampler(Sampling(temperature=1.0, seed=3))
    counts = np.bincount([sampler.pick(logits) for _ in range(8000)], minlength=4) / 8000
    assert np.abs(counts - [0.5, 0.25, 0.125, 0.125]).max() < 0.02
    cold = Sampler(Sampling(temperature=0.5, seed=3))
    counts = np.bincount([cold.pick(logits) for _ in range(8000)], minlength=4) / 8000
    squares = np.array([16, 4, 1, 1]) / 22
    assert np.abs(counts - squares).max() < 0.02


def test_top_k_and_top_p_restrict() -> None:
    logits = np.log(np.array([0.1, 0.4, 0.2, 0.3], np.float32))

    def drawn(**restriction: Any) -> set[int]:
        sampler = Sampler(Sampling(temperature=1.0, seed=1, **restriction))
        return {sampler.pick(logits) for _ in range(300)}

    assert drawn() == {0, 1, 2, 3}
    assert drawn(top_k=2) == {1, 3}
    assert drawn(top_p=0.5) == {1, 3}
    assert drawn(top_p=0.39) == {1}
    assert drawn(top_k=3, top_p=0.4) == {1}


@settings(max_examples=200)
@given(
    st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=20),
    st.floats(0, 3),
    st.integers(0, 25),
    st.floats(0.01, 1),
    st.integers(0, 2**64 - 1),
)
def test_every_draw_is_a_token_and_repeats(values: list[float], t: float, k: int, p: float, seed: int) -> None:
    logits, sampling = np.array(values, np.float32), Sampling(t, k, p, seed)
    token = Sampler(sampling).pick(logits)
    assert 0 <= token < logits.size
    assert token == Sampler(sampling).pick(logits)
    if sampling.greedy or k == 1:
        assert token == int(np.argmax(logits))


def test_infinite_logits_and_nan() -> None:
    sampler = Sampler(Sampling(temperature=1.0))
    inf = np.float32(np.inf)
    assert sampler.pick(np.array([-inf, 1, -inf], np.float32)) == 1
    assert sampler.pick(np.array([0, inf, 1], np.float32)) == 1
    with pytest.raises(WordlineError, match="not numbers"):
        sampler.pick(np.array([0, np.nan], np.float32))


# Generation


def test_greedy_generation_sends_no_logits(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    model, script = resident
    seen: list[int] = []
    with Session(model) as session:
        run = generate(session, [3, 4, 5], Sampling(), 4, (15,), seen.append)
    assert run.tokens == seen == [6, 7, 8, 9]
    assert (run.stop, run.position) == ("length", 6)
    assert run.prompt_cycles == [1000, 1001]
    assert run.decode_cycles == [1002, 1003, 1004, 1005]
    assert [e[3] for e in script.log if e[0] == "execute"] == [0, 0, 1, 1, 1, 1]


def test_generation_ends_at_the_end_token_which_is_no_text(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    seen: list[int] = []
    with Session(resident[0]) as session:
        run = generate(session, [12], Sampling(), 100, (15,), seen.append)
    assert (run.tokens, seen, run.stop) == ([13, 14, 15], [13, 14], "eos")


def test_generation_ends_at_the_context(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    with Session(resident[0], context=4) as session:
        run = generate(session, [0, 1, 2], Sampling(), 100)
    assert (run.tokens, run.stop, run.position) == ([3, 4], "context", 4)


def test_sampled_generation_uses_the_logits(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    def run(seed: int) -> list[int]:
        with Session(resident[0]) as session:
            return generate(session, [0], Sampling(temperature=1.0, top_k=2, seed=seed), 12).tokens

    assert run(1) == run(1)
    assert len({tuple(run(seed)) for seed in range(5)}) > 1
    tokens = [0, *run(2)]
    assert {(b - a) % 16 for a, b in itertools.pairwise(tokens)} <= {1, 3}


@pytest.mark.parametrize(
    ("prompt", "code", "words"),
    [([], "empty-prompt", "no tokens"), ([0] * 9, "prompt-too-long", "has 9 tokens, the context is 8: 1 too many")],
)
def test_wrong_prompts_are_refused_before_anything_runs(
    resident: tuple[ResidentModel, ScriptedDevice], prompt: list[int], code: str, words: str
) -> None:
    model, script = resident
    with Session(model, context=8) as session, pytest.raises(WordlineError, match=words) as caught:
        generate(session, prompt, Sampling(), 5)
    assert caught.value.code == code
    assert caught.value.remedy
    assert not [e for e in script.log if e[0] == "execute"]


# Timing only


@pytest.fixture
def timing(artifact: Artifact) -> Iterator[tuple[Session, ScriptedDevice]]:
    device, script = scripted(artifact.machine, counting)
    with Session(Residency(device).acquire(artifact, functional=False)) as session:
        yield session, script


def test_timing_only_needs_no_weights_and_computes_nothing(timing: tuple[Session, ScriptedDevice]) -> None:
    session, script = timing
    run = generate(session, [1, 2], Sampling(), 3, (0,))
    assert (run.tokens, run.stop, run.decode_cycles) == ([0, 0, 0], "length", [1001, 1002, 1003])
    assert {e[0] for e in script.log} == {"execute"}


def test_timing_only_can_skip_to_a_context(timing: tuple[Session, ScriptedDevice]) -> None:
    session, script = timing
    session.skip_to(700)
    assert session.step(0).cycles == 1700
    assert script.page_table(session._table_base, 8) == [2, 2, 66, 0, 34, 34, 98, 0]
    with pytest.raises(WordlineError, match="computes no values"):
        score(session, [1, 2], 3)


def test_values_cannot_be_skipped(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    with Session(resident[0]) as session, pytest.raises(WordlineError, match="cannot skip"):
        session.skip_to(10)


# Scores


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_logits_that_are_no_numbers_have_no_score(artifact: Artifact, value: float) -> None:
    def broken(token: int, position: int) -> F32:
        logits = counting(token, position)
        logits[7] = value if position else 0.0
        return logits

    device, _ = scripted(artifact.machine, broken)
    refused = pytest.raises(WordlineError, match="no finite numbers at position 1")
    with Session(Residency(device).acquire(artifact)) as session, refused as caught:
        score(session, [1, 2], 3)
    assert caught.value.code == "bad-logits"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ 1 / 0 }}", "ZeroDivisionError: division by zero"),
        ("{{ 1 + 'a' }}", "TypeError"),
        ("{% include '/etc/passwd' %}", "TypeError: no loader"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% for i in range(10000000) %}x{% endfor %}", "OverflowError: Range too big"),
        ("{% for i in range(99999) %}{{ 'a' * 1000 }}{% endfor %}", "it writes more than 16,777,216 characters"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
    ],
)
def test_a_chat_template_may_fail_in_any_way(tmp_path: Path, template: str, words: str) -> None:
    with pytest.raises(WordlineError, match="chat template refuses the conversation") as caught:
        tokenizer_with(tmp_path, chat_template=template).encode_chat([{"role": "user", "content": "a"}])
    assert caught.value.code == "chat-template"
    assert words in caught.value.what


def test_a_tokenizer_that_gives_up(tmp_path: Path) -> None:
    """The pattern takes exponential time, and the library panics after some of it."""
    values = json.loads(TOKENIZER_JSON)
    split = {"type": "Split", "pattern": {"Regex": "(a+)+$"}, "behavior": "Isolated", "invert": False}
    contents = tiny_contents(tokenizer_json=json.dumps({**values, "pre_tokenizer": split}).encode())
    tokenizer = Tokenizer(open_artifact(write_artifact(tmp_path / "t.wl", contents)))
    assert tokenizer.encode("ab")
    with pytest.raises(WordlineError, match="tokenizer cannot encode this text") as caught:
        tokenizer.encode("a" * 40 + "b")
    assert caught.value.code == "tokenizer-failed"


def test_half_a_surrogate_pair_is_no_text(artifact: Artifact) -> None:
    with pytest.raises(WordlineError, match=r"U\+D83D, at character 1") as caught:
        Tokenizer(artifact).encode("a\ud83d")
    assert caught.value.code == "bad-prompt"


def test_scores_are_what_the_logits_say(resident: tuple[ResidentModel, ScriptedDevice]) -> None:
    tokens = [3, 4, 9]
    with Session(resident[0]) as session:
        entries = score(session, tokens, 3)
    for position, entry in enumerate(entries):
        logits = counting(tokens[position], position).astype(np.float64)
        assert entry.logsumexp == pytest.approx(np.log(np.exp(logits).sum()), rel=1e-12)
        assert entry.top_ids[:2] == [(tokens[position] + 1) % 16, (tokens[position] + 3) % 16]
        assert entry.top_ids[2] == 0  # of equal logits the lowest id
        assert entry.top_logits == [4.0, 2.0, 0.0]
    assert [entry.next_logit for entry in entries] == [4.0, 0.0, None]
