"""Writes LiteLLM's own record of each call: one JSON line an event, into the file that SLUICE_RECORD names.

This is the billing record that an operator's callback or spend row would hold. Tests compare it with what the
sandbox tried to make it say.
"""

import json
import os

from litellm.integrations.custom_logger import CustomLogger

COPIED = (
    "id",
    "litellm_call_id",
    "trace_id",
    "session_id",
    "call_type",
    "stream",
    "status",
    "model",
    "model_group",
    "api_base",
    "custom_llm_provider",
    "end_user",
    "response_cost",
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "request_tags",
    "requester_ip_address",
    "user_agent",
    "error_str",
    "error_information",
    "model_parameters",
)

# Content of the call, which may be megabytes and does not matter for a bill.
CONTENT = {"messages", "input", "prompt", "system", "tools"}


class Recorder(CustomLogger):
    """Appends each success and failure event; a field that cannot be JSON is written as its `str`."""

    async def async_log_success_event(self, kwargs, response_obj, start_time, end_time):
        record("success", kwargs)

    async def async_log_failure_event(self, kwargs, response_obj, start_time, end_time):
        record("failure", kwargs)


def record(event, kwargs):
    logged = kwargs.get("standard_logging_object") or {}
    metadata = logged.get("metadata") or {}
    params = kwargs.get("litellm_params") or {}
    body = (params.get("proxy_server_request") or {}).get("body") or {}
    line = {"event": event}
    line.update({name: logged.get(name) for name in COPIED})
    line.update(
        litellm_call_id=logged.get("litellm_call_id") or kwargs.get("litellm_call_id"),
        spend_logs_metadata=metadata.get("spend_logs_metadata"),
        requester_custom_headers=metadata.get("requester_custom_headers"),
        requester_metadata=metadata.get("requester_metadata"),
        usage_object=metadata.get("usage_object"),
        cost_breakdown=logged.get("cost_breakdown"),
        optional_params=kwargs.get("optional_params"),
        user=kwargs.get("user"),
        num_retries=params.get("num_retries"),
        request_body={name: value for name, value in body.items() if name not in CONTENT},
    )
    data = (json.dumps(line, default=str) + "\n").encode()
    # O_APPEND and one write: lines of concurrent events never mix.
    file = os.open(os.environ["SLUICE_RECORD"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, data)
    finally:
        os.close(file)


recorder = Recorder()
