"""Serves Open WebUI at a free port of the loopback, which it prints. Its settings are variables.

usage: .cache/webui/bin/python tests/python/webui.py DIRECTORY      (for its data)
"""
import os
import socket
import sys
from pathlib import Path

directory = Path(sys.argv[1])
for name in ("DATA_DIR", "STATIC_DIR"):
    os.environ[name] = str(directory / name.lower())
    (directory / name.lower()).mkdir()
# As its own command `open-webui serve` does: the pages are those of the package.
os.environ |= {"FROM_INIT_PY": "true", "WEBUI_SECRET_KEY": "of a test", "WEBUI_AUTH": "false"}
# It asks no server but the one of the test.
os.environ |= {"OFFLINE_MODE": "true", "HF_HUB_OFFLINE": "1", "ENABLE_OLLAMA_API": "false", "ANONYMIZED_TELEMETRY": "false",
               "ENABLE_VERSION_UPDATE_CHECK": "false", "RAG_EMBEDDING_ENGINE": "openai"}
# Each of these would be a run of the agent.
os.environ |= {f"ENABLE_{task}_GENERATION": "false" for task in ("TITLE", "TAGS", "FOLLOW_UP", "AUTOCOMPLETE")}
os.environ |= {"ENABLE_FORWARD_USER_INFO_HEADERS": "true"}
os.chdir(directory)

listener = socket.create_server(("127.0.0.1", 0))
import uvicorn  # noqa: E402

server = uvicorn.Server(uvicorn.Config("open_webui.main:app", loop="asyncio"))
print("listening on port", listener.getsockname()[1], flush=True)
server.run(sockets=[listener])
