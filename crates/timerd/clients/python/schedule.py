"""Schedules a webhook: schedule.py ID URL

Uses a client that is generated:

    openapi-python-client generate --path ../../openapi.json --output-path timerd --meta none
"""

import json
import os
import sys

from timerd import AuthenticatedClient
from timerd.api.timers import get_timer, put_timer
from timerd.models import Done, NewTimer, Problem, Schedule, Timer, Webhook


def main():
    id, url = sys.argv[1:]
    client = AuthenticatedClient(os.environ["TIMERD_URL"], os.environ["TIMERD_TOKEN"])
    webhook = Webhook(url, body=json.dumps({"order": 7}))
    done = put_timer.sync(id, client=client, body=NewTimer(webhook=webhook, schedule=Schedule(after="1s")))
    if isinstance(done, Problem):
        sys.exit(done.detail)
    assert isinstance(done, Done)
    timer = get_timer.sync(id, client=client)
    assert isinstance(timer, Timer)
    print(done.result, timer.webhook.url, timer.due)


main()
