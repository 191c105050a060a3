"""SGLang's dialect, as 0.5.23 speaks it. Written from its source; not compared with recordings."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Final

from slipstream.core.acceptance import mean_acceptance_length_from_counts
from slipstream.core.node import SpeculatorKind
from slipstream.emulate.answers import Answers, Json, usage_of
from slipstream.emulate.counters import Counters
from slipstream.emulate.dialect import JSON, METRICS_PAGE, Dialect, Page, json_page
from slipstream.emulate.embeddings import EMBEDDINGS, EmbeddingMembers, embedding_answers
from slipstream.emulate.engine import Engine, Load
from slipstream.emulate.exposition import Family, counter, gauge, histogram, page
from slipstream.emulate.generation import Generation
from slipstream.emulate.messages import MESSAGES, Members, anthropic_error, message_answers
from slipstream.emulate.request import CHAT, COMPLETIONS, Problem, ProblemKind, read_completion
from slipstream.emulate.responses import EVERYTHING, RESPONSES, ResponseMembers, response_answers
from slipstream.emulate.settings import CONTEXT_TOKENS, NodeSettings
from slipstream.emulate.words import text_of

__all__ = ["SGLANG"]

VERSION = "0.5.23"
ALGORITHMS: Final = {None: None, SpeculatorKind.NGRAM: "NGRAM", SpeculatorKind.DRAFT: "EAGLE"}


def _error(problem: Problem, settings: NodeSettings) -> tuple[int, Json]:
    if problem.kind in (ProblemKind.UNKNOWN_PATH, ProblemKind.NO_METRICS):
        return 404, {"detail": "Not Found"}
    status, name = 400, "BadRequestError"
    if problem.kind is ProblemKind.FULL:
        status, name = settings.queue_status, "SERVICE_UNAVAILABLE"
    elif problem.kind is ProblemKind.UNKNOWN_RESPONSE:
        status, name = 404, "invalid_request_error"
    error = {"object": "error", "message": problem.message, "type": name, "param": problem.param, "code": status}
    return status, error


def _response_error(problem: Problem, settings: NodeSettings) -> tuple[int, Json]:
    """As OpenAI writes it, which the server does at this path only."""
    status, error = _error(problem, settings)
    return status, {"error": {name: error[name] for name in ("message", "type", "param", "code")}}


def _details(generation: Generation) -> Json:
    """What ``return_spec_tokens_details`` asks for. Proposed are the verify steps times K, whatever was drafted."""
    steps, accepted, k = len(generation.accepted), sum(generation.accepted), generation.k or 0
    return {
        "spec_accept_rate": accepted / (steps * k) if steps else 0.0,
        "spec_accept_length": mean_acceptance_length_from_counts(accepted, steps) or 0.0,
        "spec_num_correct_drafts": accepted,
        "spec_num_proposed_drafts": steps * k,
        "spec_verify_ct": steps,
        "spec_correct_drafts_histogram": [generation.accepted.count(length) for length in range(k + 1)],
    }


def _has_details(generation: Generation) -> bool:
    return generation.request.spec_tokens_details and generation.k is not None


def _full_usage(generation: Generation) -> Json:
    return usage_of(generation) | {"prompt_tokens_details": None, "reasoning_tokens": 0}


def _body(generation: Generation, _settings: NodeSettings) -> Json:
    request, text = generation.request, text_of(0, generation.emitted)
    ending = {"logprobs": None, "finish_reason": generation.finish_reason, "matched_stop": None}
    message = {"role": "assistant", "content": text, "reasoning_content": None, "tool_calls": None}
    choices: list[Json] = [
        {"index": index, "message": message, **ending} if request.chat else {"index": index, "text": text, **ending}
        for index in range(request.choices)
    ]
    answer = {
        "id": generation.id,
        "object": "chat.completion" if request.chat else "text_completion",
        "created": generation.created,
        "model": generation.request.model or generation.model,
        "choices": choices,
        "usage": _full_usage(generation),
        "metadata": {"weight_version": "default"},
    }
    return answer | {"sglext": {"spec_tokens_details": _details(generation)}} if _has_details(generation) else answer


def _stream(generation: Generation, before: int, _settings: NodeSettings) -> Iterator[Json]:
    """One chunk a step; chats close with a chunk that has only the reason, then what else was asked for."""
    request = generation.request
    choices = range(request.choices)
    if request.chat and before == 0:
        for index in choices:
            yield _chunk(generation, [_choice(generation, index, {"role": "assistant", "content": ""}, None)])
    delta = {"content": text_of(before, generation.emitted)}
    for index in choices:
        reason = None if request.chat else generation.finish_reason
        chunk = _chunk(generation, [_choice(generation, index, delta, reason)])
        if request.continuous_usage:
            chunk["usage"] = _full_usage(generation)
        yield chunk
    if not generation.finished:
        return
    if request.chat:
        for index in choices:
            yield _chunk(generation, [_choice(generation, index, {}, generation.finish_reason)])
    if _has_details(generation):
        yield _chunk(generation, []) | {"sglext": {"spec_tokens_details": _details(generation)}}
    if request.include_usage:
        yield _chunk(generation, []) | {"usage": _full_usage(generation)}


def _text_event(generation: Generation, text: str) -> Json | None:
    if generation.request.continuous_usage:
        return None
    return _chunk(generation, [_choice(generation, 0, {"content": text}, None)])


def _chunk(generation: Generation, choices: list[Json]) -> Json:
    return {
        "id": generation.id,
        "object": "chat.completion.chunk" if generation.request.chat else "text_completion",
        "created": generation.created,
        "model": generation.request.model or generation.model,
        "choices": choices,
        "usage": None,
    }


EMPTY_DELTA = {"role": None, "content": None, "reasoning_content": None, "tool_calls": None}


def _choice(generation: Generation, index: int, delta: Json, reason: str | None) -> Json:
    ending = {"logprobs": None, "finish_reason": reason, "matched_stop": None}
    if generation.request.chat:
        return {"index": index, "delta": EMPTY_DELTA | delta, **ending}
    return {"index": index, "text": delta["content"], **ending}


def _models(engine: Engine, _load: Load, started: int) -> Page:
    name = engine.settings.model
    model = {
        "id": name,
        "object": "model",
        "created": started,
        "owned_by": "sglang",
        "root": name,
        "parent": None,
        "max_model_len": CONTEXT_TOKENS,
    }
    return json_page({"object": "list", "data": [model]})


def _loads(engine: Engine, load: Load, _started: int) -> Page:
    settings, counts = engine.settings, engine.counters
    used = round(load.kv_use * load.kv_tokens)
    rank: Json = {
        "dp_rank": 0,
        "num_running_reqs": load.running,
        "num_waiting_reqs": load.waiting,
        "num_waiting_uncached_tokens": 0,
        "num_used_tokens": used,
        "num_total_tokens": used,
        "max_total_num_tokens": load.kv_tokens,
        "max_running_requests": settings.slots,
        "token_usage": load.kv_use,
        "gen_throughput": counts.generated_tokens / counts.decode_s if counts.decode_s else 0.0,
        "cache_hit_rate": 0.0,
    }
    if settings.speculator is not None:
        rank["speculative"] = {
            "accept_length": _accept_length(counts),
            # A window's figure in SGLang, and 0 unless it keeps metrics; here it is of the lifetime.
            "accept_rate": _accept_rate(counts, settings.k) if settings.metrics else 0.0,
        }
    return json_page({"version": VERSION, "dp_rank_count": 1, "loads": [rank]})


def _accept_length(counts: Counters) -> float:
    return mean_acceptance_length_from_counts(counts.accepted, counts.verify_steps) or 0.0


def _accept_rate(counts: Counters, k: int) -> float:
    return counts.accepted / (counts.verify_steps * k) if counts.verify_steps else 0.0


def _server_info(engine: Engine, _load: Load, _started: int) -> Page:
    settings = engine.settings
    speculating = settings.speculator is not None
    state = {"effective_max_running_requests_per_dp": settings.slots, "last_gen_throughput": 0.0}
    if speculating:
        state["avg_spec_accept_length"] = _accept_length(engine.counters)
    return json_page(
        {
            "model_path": settings.model,
            "served_model_name": settings.model,
            "context_length": CONTEXT_TOKENS,
            "max_running_requests": settings.slots,
            "enable_metrics": settings.metrics,
            "speculative_algorithm": ALGORITHMS[settings.speculator],
            "speculative_num_steps": settings.k if speculating else None,
            "speculative_eagle_topk": 1 if speculating else None,
            "speculative_num_draft_tokens": settings.k + 1 if speculating else None,
            "speculative_adaptive": False,
            "internal_states": [state],
            "version": VERSION,
        }
    )


def _model_info(engine: Engine, _load: Load, _started: int) -> Page:
    name = engine.settings.model
    return json_page({"model_path": name, "tokenizer_path": name, "is_generation": True, "weight_version": "default"})


def _metrics(engine: Engine, load: Load, _started: int) -> Page:
    if not engine.settings.metrics:
        raise Problem(ProblemKind.NO_METRICS, "This server was started without --enable-metrics.")
    labels = f'engine_type="unified",model_name="{engine.settings.model}"'
    scheduler = page(_scheduler(engine, load), f'{labels},moe_ep_rank="0",pp_rank="0",tp_rank="0"')
    return Page(METRICS_PAGE, scheduler + page(_requests(engine), labels))


def _scheduler(engine: Engine, load: Load) -> Iterator[Family]:
    settings, counts = engine.settings, engine.counters
    yield gauge("sglang:num_running_reqs", "Requests worked on.", f"{load.running}.0")
    yield gauge("sglang:num_queue_reqs", "Requests that wait.", f"{load.waiting}.0")
    yield gauge("sglang:token_usage", "Share of KV cache in use.", str(load.kv_use))
    yield gauge("sglang:max_total_num_tokens", "Tokens that fit into the KV cache.", f"{load.kv_tokens}.0")
    yield counter("sglang:num_retracted_requests_total", "Requests pushed out of the cache.", f"{counts.preemptions}.0")
    if settings.speculator is not None:
        yield gauge("sglang:spec_accept_length", "Mean tokens of a verify step.", str(_accept_length(counts)))
        yield gauge("sglang:spec_accept_rate", "Share of proposals accepted.", str(_accept_rate(counts, settings.k)))
        yield gauge("sglang:spec_num_steps", "Draft steps now.", f"{settings.k}.0")
        yield gauge("sglang:spec_num_draft_tokens", "Tokens verified a step now.", f"{settings.k + 1}.0")
        yield counter("sglang:spec_verify_calls_total", "Verify steps of ended requests.", f"{counts.verify_steps}.0")


def _requests(engine: Engine) -> Iterator[Family]:
    counts = engine.counters
    yield counter("sglang:prompt_tokens_total", "Prompt tokens read.", f"{counts.prompt_tokens}.0")
    yield counter("sglang:generation_tokens_total", "Tokens generated.", f"{counts.generated_tokens}.0")
    yield counter("sglang:num_requests_total", "Requests that ended.", f"{sum(counts.end_to_end.counts)}.0")
    yield histogram("sglang:time_to_first_token_seconds", "Time to the first token.", counts.first_token)
    yield histogram("sglang:inter_token_latency_seconds", "Time between tokens.", counts.inter_token)
    name = "sglang:request_time_per_output_token_seconds"
    yield histogram(name, "Time per output token of a request.", counts.per_output_token)
    yield histogram("sglang:e2e_request_latency_seconds", "Time of a whole request.", counts.end_to_end)


def _empty(_engine: Engine, _load: Load, _started: int) -> Page:
    return Page("text/plain; charset=utf-8", b"")


COMPLETION_ANSWERS = Answers(
    read=read_completion,
    identify=lambda bits: f"{bits:032x}",
    stream=_stream,
    text_event=_text_event,
    body=_body,
    error=_error,
    event_a_token=False,
)

MESSAGE_MEMBERS = Members(
    whole=("id", "type", "role", "content", "model", "stop_reason", "usage"),
    whole_usage=("input_tokens", "output_tokens", "cache_read_input_tokens"),
    started=("id", "type", "role", "content", "model", "usage"),
    started_usage=("input_tokens", "output_tokens", "cache_read_input_tokens"),
    delta=("stop_reason",),
    delta_usage=("input_tokens", "output_tokens", "cache_read_input_tokens"),
    prompt_at_start=False,
    needs_limit=True,
)

RESPONSE_MEMBERS = ResponseMembers(
    started=EVERYTHING,
    closing=EVERYTHING,
    whole=EVERYTHING,
    details={"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}},
    placed=True,
    tells_cut=False,
    not_stored="Response with id '{}' not found.",
    statistics=lambda _generation: {},
)

EMBEDDING_MEMBERS = EmbeddingMembers(
    whole=("data", "model", "object", "usage"),
    usage=("prompt_tokens", "total_tokens", "completion_tokens", "prompt_tokens_details", "reasoning_tokens"),
    base64=False,
)


SGLANG = Dialect(
    name="sglang",
    server_headers=b"server: uvicorn\r\n",
    kept_headers=b"",
    stream_headers=b"content-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n",
    json_type=JSON,
    pages={
        "/v1/models": _models,
        "/metrics": _metrics,
        "/v1/loads": _loads,
        "/server_info": _server_info,
        "/get_server_info": _server_info,
        "/model_info": _model_info,
        "/get_model_info": _model_info,
        "/health": _empty,
        "/health_generate": _empty,
    },
    answers={
        CHAT: COMPLETION_ANSWERS,
        COMPLETIONS: COMPLETION_ANSWERS,
        MESSAGES: message_answers(
            MESSAGE_MEMBERS, partial(anthropic_error, _error), lambda bits: f"msg_{bits:032x}", event_a_token=False
        ),
        RESPONSES: response_answers(RESPONSE_MEMBERS, _response_error, event_a_token=False),
        EMBEDDINGS: embedding_answers(EMBEDDING_MEMBERS, _error, COMPLETION_ANSWERS.identify),
    },
    error=_error,
    error_closes=False,
    dated=True,
    checks_model=False,
    counters_at_request_end=True,
    drafts_fit_output=False,
    has_request_statistics=False,
)
