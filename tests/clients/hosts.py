"""The hosts of the client tests, on loopback: one that records what it is given, and llama.cpp's own server."""

from __future__ import annotations

import http.server
import json
import re
import socket
import subprocess
import threading
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from common import ANSWER, DOC_MODEL, HERE, compact


@dataclass
class Arrived:
    """One request at the host."""

    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def model(self) -> str:
        try:
            return json.loads(self.body).get("model", "")
        except ValueError:
            return ""


class Host(http.server.ThreadingHTTPServer):
    """A host on loopback that keeps what it is given. The model's name says how it answers: m-redirect, m-fails, anything else well."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.arrived: list[Arrived] = []
        self.elsewhere = Elsewhere()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def stop(self) -> None:
        self.shutdown()
        self.server_close()
        self.elsewhere.stop()


class Elsewhere:
    """Where the redirect points: it counts who connects, and answers nobody."""

    def __init__(self) -> None:
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.socket.listen(64)
        self.port = self.socket.getsockname()[1]
        self.connections = 0
        threading.Thread(target=self._count, daemon=True).start()

    def _count(self) -> None:
        while True:
            try:
                connection, _ = self.socket.accept()
            except OSError:
                return
            self.connections += 1
            connection.close()

    def stop(self) -> None:
        self.socket.close()


def chat(text: str) -> dict:
    message = {"role": "assistant", "content": text}
    usage = {"prompt_tokens": 20, "completion_tokens": 9, "total_tokens": 29}
    choices = [{"index": 0, "message": message, "finish_reason": "stop"}]
    return {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": DOC_MODEL, "choices": choices, "usage": usage}


def chat_events(text: str):
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": DOC_MODEL}
    for piece in re.findall(r"\S+\s*", text):
        yield None, {**head, "choices": [{"index": 0, "delta": {"role": "assistant", "content": piece}, "finish_reason": None}]}
    yield None, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
    yield None, "[DONE]"


def message(text: str) -> dict:
    usage = {"input_tokens": 20, "output_tokens": 9}
    content = [{"type": "text", "text": text}]
    return {"id": "msg_1", "type": "message", "role": "assistant", "model": DOC_MODEL, "content": content, "stop_reason": "end_turn", "stop_sequence": None, "usage": usage}


def message_events(text: str):
    yield "message_start", {"type": "message_start", "message": {**message(text), "content": [], "stop_reason": None}}
    yield "content_block_start", {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
    for piece in re.findall(r"\S+\s*", text):
        yield "content_block_delta", {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": piece}}
    yield "content_block_stop", {"type": "content_block_stop", "index": 0}
    yield "message_delta", {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}, "usage": {"output_tokens": 9}}
    yield "message_stop", {"type": "message_stop"}


def response(text: str) -> dict:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    output = [{"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}]
    usage = {"input_tokens": 20, "output_tokens": 9, "total_tokens": 29, "input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    more = {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None, "incomplete_details": None, "instructions": None, "metadata": {}}
    return {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": DOC_MODEL, "output": output, "usage": usage, **more}


class Answers(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        arrived = Arrived(self.path, {k.lower(): v for k, v in self.headers.items()}, body)
        self.server.arrived.append(arrived)
        if arrived.model == "m-redirect":
            self._send(307, b"", {"location": f"http://127.0.0.1:{self.server.elsewhere.port}{self.path}"})
        elif arrived.model == "m-fails":
            self._json(500, {"error": {"message": "the host is out of order", "type": "server_error", "code": None, "param": None}})
        elif self.path == "/v1/messages":
            self._well(body, message, message_events)
        elif self.path == "/v1/responses":
            self._json(200, response(ANSWER))
        elif self.path == "/v1/chat/completions":
            self._well(body, chat, chat_events)
        else:
            self._json(404, {"error": {"message": f"no {self.path} here", "type": "not_found", "code": None, "param": None}})

    def do_GET(self) -> None:
        self.server.arrived.append(Arrived(self.path, {}, b""))
        self._json(404, {"error": {"message": f"no {self.path} here"}})

    def _well(self, body: bytes, whole, events) -> None:
        if not json.loads(body).get("stream"):
            self._json(200, whole(ANSWER))
            return
        lines = []
        for name, value in events(ANSWER):
            text = value if isinstance(value, str) else compact(value)
            lines.append((f"event: {name}\n" if name else "") + f"data: {text}\n\n")
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        for line in lines:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line.encode()), line.encode()))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def _json(self, status: int, value: dict) -> None:
        self._send(status, compact(value).encode(), {"content-type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_args) -> None:
        pass


class ModelServer:
    """llama.cpp's server with a tiny model of random weights, in a process of its own: a host that this project did not write."""

    def __init__(self, folder: Path, python: str | Path) -> None:
        model = folder / "tiny.gguf"
        subprocess.run([python, HERE / "tiny_model.py", model], check=True)
        self.log = folder / "host.log"
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen([python, HERE / "model_server.py", model], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log)
        # A host that never comes up ends the test, not the patience of who waits for it.
        timer = threading.Timer(60, self.process.kill)
        timer.start()
        self.base_url = self.process.stdout.readline().decode().strip()
        timer.cancel()
        if not self.base_url.startswith("http://127.0.0.1:"):
            raise RuntimeError(f"the host did not start: {self.log.read_text()[-800:]}")

    def tokens(self) -> int:
        """Tokens that the host has processed or given since its start: any request moves it."""
        with urllib.request.urlopen(self.base_url.removesuffix("/v1") + "/metrics", timeout=10) as answer:
            text = answer.read().decode()
        values = dict(line.split() for line in text.splitlines() if line and not line.startswith("#"))
        return int(float(values["llamacpp:prompt_tokens_total"])) + int(float(values["llamacpp:tokens_predicted_total"]))

    def stop(self) -> None:
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
