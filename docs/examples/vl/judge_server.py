"""The same scorer over HTTP, for rewards.external.url: a batch in, a list of scores out.

    python3 judge_server.py 8765 &
    rewards.external.weight=1 rewards.external.url=http://127.0.0.1:8765/score
"""
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Judge(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        items = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["items"]
        scores = [1.0 if 1 <= len(item["answer"].split()) <= 3 else 0.0 for item in items]
        reply = json.dumps({"scores": scores}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Judge).serve_forever()
