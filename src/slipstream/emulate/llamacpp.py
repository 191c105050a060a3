"""llama.cpp's dialect, as its server speaks it since build b11549."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from slipstream.core.node import SpeculatorKind
from slipstream.emulate.answers import Answers, Json, usage_of
from slipstream.emulate.dialect import METRICS_PAGE, Dialect, Page, json_page
from slipstream.emulate.embeddings import EMBEDDINGS, EmbeddingMembers, embedding_answers
from slipstream.emulate.engine import Engine, Load
from slipstream.emulate.exposition import Family, Series, counter, gauge, page
from slipstream.emulate.generation import Generation
from slipstream.emulate.messages import MESSAGES, Members, message_answers
from slipstream.emulate.request import CHAT, COMPLETIONS, Problem, ProblemKind, read_completion
from slipstream.emulate.responses import RESPONSES, ResponseMembers, response_answers
from slipstream.emulate.settings import CONTEXT_TOKENS, NodeSettings
from slipstream.emulate.words import text_of

__all__ = ["LLAMACPP"]

BUILD = "b11549-emulated"
JSON_TYPE = "application/json; charset=utf-8"
SPECULATORS: Final = {None: "none", SpeculatorKind.NGRAM: "ngram-simple", SpeculatorKind.DRAFT: "draft-simple"}
PREFIX = "llamacpp:"


def _error(problem: Problem, settings: NodeSettings) -> tuple[int, Json]:
    if problem.kind is ProblemKind.UNKNOWN_PATH:
        return 404, {"error": {"message": "File Not Found", "type": "not_found_error", "code": 404}}
    status, name = 400, "invalid_request_error"
    if problem.kind is ProblemKind.NO_METRICS:
        status, name = 501, "not_supported_error"
    elif problem.kind is ProblemKind.FULL:
        status, name = settings.queue_status, "unavailable_error"
    return status, {"error": {"code": status, "message": problem.message, "type": name}}


def _message_error(problem: Problem, settings: NodeSettings) -> tuple[int, Json]:
    """The server's own form, as on its other paths; messages that are missing are a mistake of its own there."""
    if problem.param == "messages":
        return 500, {"error": {"code": 500, "message": problem.message, "type": "server_error"}}
    return _error(problem, settings)


def _timings(generation: Generation) -> Json:
    """Drafts are left out when there was none, which is how the server says 0."""
    prompt, predicted = generation.request.prompt_tokens, generation.emitted
    prompt_ms, predicted_ms = generation.prefill_s * 1000, generation.decode_s * 1000
    timings: Json = {
        "cache_n": 0,
        "prompt_n": prompt,
        "prompt_ms": prompt_ms,
        "prompt_per_token_ms": prompt_ms / prompt,
        "prompt_per_second": prompt / generation.prefill_s if generation.prefill_s else 0.0,
        "predicted_n": predicted,
        "predicted_ms": predicted_ms,
        "predicted_per_token_ms": predicted_ms / predicted,
        "predicted_per_second": predicted / generation.decode_s if generation.decode_s else 0.0,
    }
    if generation.drafted:
        timings |= {"draft_n": sum(generation.drafted), "draft_n_accepted": sum(generation.accepted)}
    return timings


def _frame(generation: Generation, choices: list[Json], *, streamed: bool) -> Json:
    """Keys in the server's order, which is another for chats than for completions and for streams than for bodies."""
    frame: Json = {"choices": choices, "created": generation.created}
    if generation.request.chat and streamed:
        frame["id"] = generation.id
    frame |= {"model": generation.model, "system_fingerprint": BUILD}
    if not generation.request.chat:
        return frame | {"object": "text_completion"}
    return frame | {"object": "chat.completion.chunk" if streamed else "chat.completion"}


def _full_usage(generation: Generation) -> Json:
    usage = usage_of(generation)
    return {name: usage[name] for name in ("completion_tokens", "prompt_tokens", "total_tokens")} | {
        "prompt_tokens_details": {"cached_tokens": 0}
    }


def _body(generation: Generation, _settings: NodeSettings) -> Json:
    text, reason = text_of(0, generation.emitted), generation.finish_reason
    choices: list[Json] = [
        {"finish_reason": reason, "index": index, "message": {"role": "assistant", "content": text}}
        if generation.request.chat
        else {"text": text, "index": index, "logprobs": None, "finish_reason": reason}
        for index in range(generation.request.choices)
    ]
    return _frame(generation, choices, streamed=False) | {
        "usage": _full_usage(generation),
        "id": generation.id,
        "timings": _timings(generation),
    }


def _stream(generation: Generation, before: int, _settings: NodeSettings) -> Iterator[Json]:
    """One event a token, a step's in a burst; then one with the reason, and with usage another without a choice."""
    request = generation.request
    choices = range(request.choices)
    if request.chat and before == 0:
        yield from (_event(generation, index, {"role": "assistant", "content": None}) for index in choices)
    for token in range(before, generation.emitted):
        text = text_of(token, token + 1)
        for index in choices:
            event = _event(generation, index, {"content": text})
            yield event | {"timings": _timings(generation)} if request.timings_per_token else event
    if not generation.finished:
        return
    for index in choices:
        event = _event(generation, index, {}, generation.finish_reason)
        last = index == request.choices - 1
        if last and not request.chat:
            event = {name: event[name] for name in event if name != "id"} | {
                "usage": _full_usage(generation),
                "id": generation.id,
            }
        yield (
            event | {"timings": _timings(generation)}
            if last and not (request.chat and request.include_usage)
            else event
        )
    if request.chat and request.include_usage:
        yield _frame(generation, [], streamed=True) | {
            "usage": _full_usage(generation),
            "timings": _timings(generation),
        }


def _text_event(generation: Generation, text: str) -> Json | None:
    if generation.request.timings_per_token:
        return None
    return _event(generation, 0, {"content": text})


def _event(generation: Generation, index: int, delta: Json, reason: str | None = None) -> Json:
    if generation.request.chat:
        return _frame(generation, [{"finish_reason": reason, "index": index, "delta": delta}], streamed=True)
    choice = {"text": delta.get("content", ""), "index": index, "logprobs": None, "finish_reason": reason}
    return _frame(generation, [choice], streamed=True) | {"id": generation.id}


def _models(engine: Engine, _load: Load, started: int) -> Page:
    name = engine.settings.model
    listed = {"name": name, "model": name, "type": "model", "capabilities": ["completion"]}
    model = {
        "id": name,
        "aliases": [name],
        "tags": [],
        "object": "model",
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
        "created": started,
        "owned_by": "llamacpp",
        "meta": {"n_ctx": CONTEXT_TOKENS, "n_ctx_train": CONTEXT_TOKENS},
    }
    return json_page({"models": [listed], "object": "list", "data": [model]})


def _properties(engine: Engine, _load: Load, _started: int) -> Page:
    """`speculative.types` reads ``none`` here whatever drafts, as in the server."""
    name = engine.settings.model
    return json_page(
        {
            "default_generation_settings": {
                "params": {"n_predict": -1, "stream": False, "speculative.types": "none", "timings_per_token": False},
                "n_ctx": CONTEXT_TOKENS,
            },
            "total_slots": engine.settings.slots,
            "model_alias": name,
            "model_path": name,
            "modalities": {"vision": False, "video": False, "audio": False},
            "endpoint_slots": True,
            "endpoint_props": True,
            "endpoint_metrics": engine.settings.metrics,
            "build_info": BUILD,
            "is_sleeping": False,
        }
    )


def _slots(engine: Engine, load: Load, _started: int) -> Page:
    speculative = engine.settings.speculator is not None
    slots: list[Json] = [
        {"id": index, "n_ctx": CONTEXT_TOKENS, "speculative": speculative, "is_processing": index < load.running}
        for index in range(engine.settings.slots)
    ]
    busy = [generation for generation in engine.generations() for _ in range(generation.slots)]
    for slot, (task, generation) in zip(slots[: load.running], enumerate(busy), strict=False):
        left = generation.output_tokens - generation.emitted
        slot |= {
            "id_task": task,
            "n_prompt_tokens": generation.request.prompt_tokens,
            "n_prompt_tokens_processed": generation.request.prompt_tokens,
            "n_prompt_tokens_cache": 0,
            "params": {
                "n_predict": generation.output_tokens,
                "stream": generation.request.stream,
                "speculative.types": SPECULATORS[engine.settings.speculator],
            },
            "next_token": [{"has_next_token": left > 0, "n_remain": left, "n_decoded": generation.emitted}],
        }
    return json_page(slots)


def _metrics(engine: Engine, load: Load, _started: int) -> Page:
    if not engine.settings.metrics:
        raise Problem(ProblemKind.NO_METRICS, "This server was started without --metrics.")
    return Page(METRICS_PAGE, page(_families(engine, load)))


def _families(engine: Engine, load: Load) -> Iterator[Family]:
    counts = engine.counters
    for name, meaning, value in (
        ("prompt_tokens_total", "Prompt tokens read, without those from the cache.", counts.prompt_tokens),
        ("prompt_tokens_cached_total", "Prompt tokens from the cache.", 0),
        ("prompt_seconds_total", "Time spent on prompts.", counts.prefill_s),
        ("tokens_predicted_total", "Tokens generated.", counts.generated_tokens),
        ("tokens_predicted_seconds_total", "Time spent on generating.", counts.decode_s),
        ("n_decode_total", "Decode calls.", counts.steps),
        ("n_tokens_max", "Longest sequence seen.", counts.longest_sequence),
        ("spec_decode_num_draft_tokens_total", "Tokens drafted.", counts.drafted),
        ("spec_decode_num_accepted_tokens_total", "Drafted tokens accepted.", counts.accepted),
        ("spec_decode_num_drafts_total", "Drafts verified.", counts.verify_steps),
    ):
        yield counter(PREFIX + name, meaning, f"{value:.10g}")
    # The server gives the mean between two scrapes; here it is the mean since the start, which no scraper disturbs.
    for name, meaning, mean in (
        ("prompt_tokens_seconds", "Prompt tokens a second.", _rate(counts.prompt_tokens, counts.prefill_s)),
        ("predicted_tokens_seconds", "Tokens generated a second.", _rate(counts.generated_tokens, counts.decode_s)),
        ("requests_processing", "Busy slots.", load.running),
        ("requests_deferred", "Requests without a slot.", load.waiting),
        ("n_busy_slots_per_decode", "Mean of busy slots.", load.running),
    ):
        yield gauge(PREFIX + name, meaning, f"{mean:.6g}")
    if counts.verify_steps:
        positions = tuple(
            Series("", f'position="{position}"', str(count)) for position, count in enumerate(counts.per_position)
        )
        name = f"{PREFIX}spec_decode_num_accepted_tokens_per_pos_total"
        yield Family(name, "counter", "Drafted tokens accepted, by position.", positions)


def _rate(count: int, seconds: float) -> float:
    return count / seconds if seconds else 0.0


COMPLETION_ANSWERS = Answers(
    read=read_completion,
    identify=lambda bits: f"chatcmpl-{bits:032x}",
    stream=_stream,
    text_event=_text_event,
    body=_body,
    error=_error,
    event_a_token=True,
)

MESSAGE_MEMBERS = Members(
    whole=("id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage"),
    whole_usage=("cache_read_input_tokens", "input_tokens", "output_tokens"),
    started=("id", "type", "role", "content", "model", "stop_reason", "stop_sequence", "usage"),
    started_usage=("cache_read_input_tokens", "input_tokens", "output_tokens"),
    delta=("stop_reason", "stop_sequence"),
    delta_usage=("output_tokens",),
    prompt_at_start=True,
    needs_limit=False,
)

RESPONSE_MEMBERS = ResponseMembers(
    started=("id", "object", "status"),
    closing=("id", "object", "created_at", "status", "model", "output", "usage"),
    whole=("completed_at", "created_at", "id", "model", "object", "output", "status", "usage"),
    details={"input_tokens_details": {"cached_tokens": 0}},
    placed=False,
    tells_cut=False,
    not_stored="llama.cpp does not support 'previous_response_id'.",
    statistics=lambda generation: {"timings": _timings(generation)},
)

EMBEDDING_MEMBERS = EmbeddingMembers(
    whole=("model", "object", "usage", "data"), usage=("prompt_tokens", "total_tokens"), base64=True
)


LLAMACPP = Dialect(
    name="llamacpp",
    server_headers=b"Server: llama.cpp\r\nAccess-Control-Allow-Origin: \r\n",
    kept_headers=b"Keep-Alive: timeout=5, max=100\r\n",
    stream_headers=b"X-Accel-Buffering: no\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n",
    json_type=JSON_TYPE,
    pages={
        "/v1/models": _models,
        "/metrics": _metrics,
        "/props": _properties,
        "/slots": _slots,
        "/health": lambda _engine, _load, _started: json_page({"status": "ok"}),
        "/v1/health": lambda _engine, _load, _started: json_page({"status": "ok"}),
    },
    answers={
        CHAT: COMPLETION_ANSWERS,
        COMPLETIONS: COMPLETION_ANSWERS,
        MESSAGES: message_answers(MESSAGE_MEMBERS, _message_error, COMPLETION_ANSWERS.identify, event_a_token=True),
        RESPONSES: response_answers(RESPONSE_MEMBERS, _error, event_a_token=True),
        EMBEDDINGS: embedding_answers(EMBEDDING_MEMBERS, _error, COMPLETION_ANSWERS.identify),
    },
    error=_error,
    error_closes=True,
    dated=False,
    checks_model=False,
    counters_at_request_end=True,
    drafts_fit_output=True,
    has_request_statistics=False,
)
