"""Receives webhooks, and accepts those that are signed with $WEBHOOK_SECRET: receiver.py PORT"""

import os
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

SECRET = Webhook(os.environ["WEBHOOK_SECRET"])


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            # Refuses a wrong signature, and a time that is more than five minutes away.
            order = SECRET.verify(body, dict(self.headers))
        except WebhookVerificationError as error:
            print("refused:", error, flush=True)
            # The service makes the call again. It would give up after 400.
            return self.answer(401)
        # A call may be repeated. Its id stays the same, so remember the ids that you have processed.
        print("verified", self.headers["webhook-id"], order, flush=True)
        self.answer(204)

    def answer(self, status):
        self.send_response(status)
        self.end_headers()

    def log_message(self, *_):
        pass


ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
