"""vLLM's dialect, as 0.32 speaks it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from slipstream.core.acceptance import mean_acceptance_length_from_counts
from slipstream.emulate.answers import Answers, Json, usage_of
from slipstream.emulate.dialect import JSON, METRICS_PAGE, Dialect, Page, json_page
from slipstream.emulate.embeddings import EMBEDDINGS, EmbeddingMembers, embedding_answers
from slipstream.emulate.engine import Engine, Load
from slipstream.emulate.exposition import Family, Series, counter, gauge, histogram, page
from slipstream.emulate.generation import Generation
from slipstream.emulate.messages import MESSAGES, Members, anthropic_error, message_answers
from slipstream.emulate.request import CHAT, COMPLETIONS, Problem, ProblemKind, read_completion
from slipstream.emulate.responses import EVERYTHING, RESPONSES, ResponseMembers, response_answers
from slipstream.emulate.settings import CONTEXT_TOKENS, NodeSettings
from slipstream.emulate.words import text_of

__all__ = ["VLLM"]

VERSION = "0.32.0"
FINGERPRINT = f"vllm-{VERSION}-00000000"
HALF = (1 << 64) - 1
PER_STEP = ("per_step_accepted", "per_step_drafted")

ERRORS = {
    ProblemKind.BAD_JSON: (400, "Bad Request"),
    ProblemKind.BAD_FIELD: (400, "Bad Request"),
    ProblemKind.UNKNOWN_MODEL: (404, "NotFoundError"),
    ProblemKind.UNKNOWN_RESPONSE: (404, "invalid_request_error"),
    ProblemKind.REJECTED_FIELD: (400, "BadRequestError"),
    ProblemKind.FULL: (503, "ServiceUnavailableError"),
}


def _error(problem: Problem, settings: NodeSettings) -> tuple[int, Json]:
    if problem.kind not in ERRORS:
        return 404, {"detail": "Not Found"}
    status, name = ERRORS[problem.kind]
    if problem.kind is ProblemKind.FULL:
        status = settings.queue_status
    return status, {"error": {"message": problem.message, "type": name, "param": problem.param, "code": status}}


def _statistics(generation: Generation, settings: NodeSettings) -> Json | None:
    """What ``--per-request-spec-decode-metrics`` adds to an answer; only answers with one choice have it."""
    if settings.request_statistics == "none" or generation.request.choices != 1 or generation.k is None:
        return None
    steps, drafted, accepted = len(generation.drafted), sum(generation.drafted), sum(generation.accepted)
    fields: Json = {
        "mean_acceptance_length": mean_acceptance_length_from_counts(accepted, steps) or 1.0,
        "draft_acceptance_rate": accepted / drafted if drafted else 0.0,
        "acceptance_histogram": [generation.accepted.count(length) for length in range(generation.k + 1)],
        "num_spec_steps": steps,
        "num_accepted_draft_tokens": accepted,
        "num_draft_tokens": drafted,
        "num_spec_tokens": generation.k,
    }
    if settings.request_statistics == "detailed":
        fields |= dict(zip(PER_STEP, (generation.accepted, generation.drafted), strict=True))
    return fields


def _body(generation: Generation, settings: NodeSettings) -> Json:
    request, text = generation.request, text_of(0, generation.emitted)
    statistics = _statistics(generation, settings)
    metrics: Json | None = None
    if statistics is not None:
        metrics = {
            "time_to_first_token_ms": None,
            "generation_time_ms": None,
            "queue_time_ms": None,
            "mean_itl_ms": None,
            "tokens_per_second": None,
            "speculative_decoding": {**statistics, **{name: statistics.get(name) for name in PER_STEP}},
        }
    ending = {"finish_reason": generation.finish_reason, "stop_reason": None, "token_ids": None}
    message = {
        "role": "assistant",
        "content": text,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
        "reasoning": None,
    }
    choices: list[Json] = [
        {"index": index, "message": message, "logprobs": None, **ending, "routed_experts": None}
        if request.chat
        else {
            "index": index,
            "text": text,
            "logprobs": None,
            **ending,
            "prompt_logprobs": None,
            "prompt_token_ids": None,
        }
        for index in range(request.choices)
    ]
    return {
        "id": generation.id,
        "object": "chat.completion" if request.chat else "text_completion",
        "created": generation.created,
        "model": generation.model,
        "choices": choices,
        "service_tier": None,
        "system_fingerprint": FINGERPRINT,
        "usage": usage_of(generation) | {"prompt_tokens_details": None, "completion_tokens_details": None},
        **({"prompt_logprobs": None, "prompt_token_ids": None, "prompt_text": None} if request.chat else {}),
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "metrics": metrics,
    }


def _stream(generation: Generation, before: int, settings: NodeSettings) -> Iterator[Json]:
    """One chunk a step and choice, with all of the step's tokens; with usage the last chunk has no choice."""
    request = generation.request
    continuous = request.include_usage and request.continuous_usage
    if request.chat and before == 0:
        for index in range(request.choices):
            delta = {"role": "assistant", "content": ""}
            first = _chunk(generation, [{"index": index, "delta": delta, "logprobs": None, "finish_reason": None}])
            if continuous:
                prompt = request.prompt_tokens
                first["usage"] = _running_usage(
                    {"prompt_tokens": prompt, "total_tokens": prompt, "completion_tokens": 0}
                )
            yield first | {"prompt_token_ids": None, "prompt_text": None}
    text = text_of(before, generation.emitted)
    for index in range(request.choices):
        chunk = _chunk(generation, [_choice(generation, index, text)])
        if continuous:
            chunk["usage"] = _running_usage(usage_of(generation))
        if generation.finished and not request.include_usage and index == request.choices - 1:
            chunk["system_fingerprint"] = FINGERPRINT
        yield chunk
    if generation.finished and request.include_usage:
        last = _chunk(generation, []) | {"usage": usage_of(generation), "system_fingerprint": FINGERPRINT}
        statistics = _statistics(generation, settings)
        yield last if statistics is None else last | {"metrics": {"speculative_decoding": statistics}}


def _text_event(generation: Generation, text: str) -> Json | None:
    request = generation.request
    if request.include_usage and request.continuous_usage:
        return None
    return _chunk(generation, [_choice(generation, 0, text)])


def _chunk(generation: Generation, choices: list[Json]) -> Json:
    return {
        "id": generation.id,
        "object": "chat.completion.chunk" if generation.request.chat else "text_completion",
        "created": generation.created,
        "model": generation.model,
        "choices": choices,
    }


def _choice(generation: Generation, index: int, text: str) -> Json:
    reason = generation.finish_reason
    if not generation.request.chat:
        return {
            "index": index,
            "text": text,
            "logprobs": None,
            "finish_reason": reason,
            "stop_reason": None,
            "prompt_token_ids": None,
            "token_ids": None,
        }
    choice: Json = {"index": index, "delta": {"content": text}, "logprobs": None, "finish_reason": reason}
    if reason is not None:
        choice["stop_reason"] = None
    return choice | {"token_ids": None}


def _running_usage(usage: Json) -> Json:
    return usage | {"completion_tokens_details": None}


def _models(engine: Engine, _load: Load, started: int) -> Page:
    permission = {
        "id": "modelperm-0000000000000000",
        "object": "model_permission",
        "created": started,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    model = {
        "id": engine.settings.model,
        "object": "model",
        "created": started,
        "owned_by": "vllm",
        "root": engine.settings.model,
        "parent": None,
        "max_model_len": CONTEXT_TOKENS,
        "permission": [permission],
    }
    return json_page({"object": "list", "data": [model]})


def _metrics(engine: Engine, load: Load, started: int) -> Page:
    """Without metrics only what the process says of itself is left, as with ``--disable-log-stats``."""
    process = [gauge("process_start_time_seconds", "When the process began, Unix seconds.", f"{started}.0")]
    if not engine.settings.metrics:
        return Page(METRICS_PAGE, page(process))
    labels = f'engine="0",model_name="{engine.settings.model}"'
    return Page(METRICS_PAGE, page(process) + page(_families(engine, load), labels))


def _families(engine: Engine, load: Load) -> Iterator[Family]:
    counts = engine.counters
    if engine.settings.speculator is not None:
        yield _count("spec_decode_num_drafts", "Drafts verified.", counts.verify_steps)
        yield _count("spec_decode_num_draft_tokens", "Tokens drafted.", counts.drafted)
        yield _count("spec_decode_num_accepted_tokens", "Drafted tokens accepted.", counts.accepted)
        positions = tuple(
            Series("", f'position="{position}"', f"{count}.0") for position, count in enumerate(counts.per_position)
        )
        name = "vllm:spec_decode_num_accepted_tokens_per_pos_total"
        yield Family(name, "counter", "Drafted tokens accepted, by position.", positions)
    yield gauge("vllm:num_requests_running", "Sequences worked on.", f"{load.running}.0")
    yield gauge("vllm:num_requests_waiting", "Sequences that wait.", f"{load.waiting}.0")
    by_reason = (("capacity", load.waiting), ("deferred", 0))
    yield Family(
        "vllm:num_requests_waiting_by_reason",
        "gauge",
        "Sequences that wait, by what for.",
        tuple(Series("", f'reason="{reason}"', f"{count}.0") for reason, count in by_reason),
    )
    yield gauge("vllm:kv_cache_usage_perc", "Share of KV cache in use.", str(load.kv_use))
    yield _count("num_preemptions", "Sequences pushed out of the cache.", counts.preemptions)
    yield _count("prompt_tokens", "Prompt tokens read.", counts.prompt_tokens)
    yield _count("generation_tokens", "Tokens generated.", counts.generated_tokens)
    ended = (("stop", counts.stopped), ("length", counts.cut), ("abort", counts.aborted), ("error", 0))
    yield Family(
        "vllm:request_success_total",
        "counter",
        "Requests ended, by how.",
        tuple(Series("", f'finished_reason="{reason}"', f"{count}.0") for reason, count in ended),
    )
    refused = Series("", 'reason="max_num_queued_reqs"', f"{counts.refused}.0")
    yield Family("vllm:admission_rejections_total", "counter", "Requests refused by a full queue.", (refused,))
    yield histogram("vllm:time_to_first_token_seconds", "Time to the first token.", counts.first_token)
    yield histogram("vllm:inter_token_latency_seconds", "Time between two steps of a request.", counts.inter_step)
    name = "vllm:request_time_per_output_token_seconds"
    yield histogram(name, "Time per output token of a request.", counts.per_output_token)
    yield histogram("vllm:e2e_request_latency_seconds", "Time of a whole request.", counts.end_to_end)


def _count(name: str, meaning: str, value: int) -> Family:
    return counter(f"vllm:{name}_total", meaning, f"{value}.0")


CHAT_ANSWERS = Answers(
    read=read_completion,
    identify=lambda bits: f"chatcmpl-{bits & HALF:016x}",
    stream=_stream,
    text_event=_text_event,
    body=_body,
    error=_error,
    event_a_token=False,
)

# What is not set in the first event of a stream is left out of it, its type and its role too.
MESSAGE_MEMBERS = Members(
    whole=("id", "type", "role", "content", "model", "stop_reason", "usage"),
    whole_usage=("input_tokens", "output_tokens"),
    started=("id", "content", "model", "stop_reason", "stop_sequence", "usage"),
    started_usage=("input_tokens", "output_tokens"),
    delta=("stop_reason",),
    delta_usage=("input_tokens", "output_tokens"),
    prompt_at_start=True,
    needs_limit=True,
)

RESPONSE_MEMBERS = ResponseMembers(
    started=EVERYTHING,
    closing=EVERYTHING,
    whole=EVERYTHING,
    details={
        "input_tokens_details": {"cached_tokens": 0, "input_tokens_per_turn": [], "cached_tokens_per_turn": []},
        "output_tokens_details": {
            "reasoning_tokens": 0,
            "tool_output_tokens": 0,
            "output_tokens_per_turn": [],
            "tool_output_tokens_per_turn": [],
        },
    },
    placed=True,
    tells_cut=True,
    not_stored="Response with id '{}' not found.",
    statistics=lambda _generation: {},
)

EMBEDDING_MEMBERS = EmbeddingMembers(
    whole=("id", "object", "created", "model", "data", "usage"),
    usage=(
        "prompt_tokens",
        "total_tokens",
        "completion_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
    ),
    base64=True,
)


VLLM = Dialect(
    name="vllm",
    server_headers=b"server: uvicorn\r\nvary: Origin\r\n",
    kept_headers=b"",
    stream_headers=b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n",
    json_type=JSON,
    pages={
        "/v1/models": _models,
        "/metrics": _metrics,
        "/version": lambda _engine, _load, _started: json_page({"version": VERSION}),
        "/health": lambda _engine, _load, _started: Page("text/plain; charset=utf-8", b""),
    },
    answers={
        CHAT: CHAT_ANSWERS,
        COMPLETIONS: replace(CHAT_ANSWERS, identify=lambda bits: f"cmpl-{bits & HALF:016x}"),
        MESSAGES: message_answers(
            MESSAGE_MEMBERS, partial(anthropic_error, _error), CHAT_ANSWERS.identify, event_a_token=False
        ),
        RESPONSES: response_answers(RESPONSE_MEMBERS, _error, event_a_token=False),
        EMBEDDINGS: embedding_answers(EMBEDDING_MEMBERS, _error, lambda bits: f"embd-{bits & HALF:016x}"),
    },
    error=_error,
    error_closes=False,
    dated=True,
    checks_model=True,
    counters_at_request_end=False,
    drafts_fit_output=False,
    has_request_statistics=True,
    rejected_when_speculating=frozenset({"min_p", "logit_bias"}),
)
