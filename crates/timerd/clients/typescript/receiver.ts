// Receives webhooks, and accepts those that are signed with $WEBHOOK_SECRET: node dist/receiver.js PORT

import { createServer } from "node:http";
import { buffer } from "node:stream/consumers";
import { Webhook, WebhookVerificationError } from "standardwebhooks";

const secret = new Webhook(process.env.WEBHOOK_SECRET ?? "");

const server = createServer(async (request, response) => {
  const body = await buffer(request);
  try {
    // Refuses a wrong signature, and a time that is more than five minutes away.
    const order = secret.verify(body, request.headers as Record<string, string>);
    // A call may be repeated. Its id stays the same, so remember the ids that you have processed.
    console.log("verified", request.headers["webhook-id"], order);
    response.writeHead(204).end();
  } catch (error) {
    if (!(error instanceof WebhookVerificationError)) throw error;
    console.log("refused:", error.message);
    // The service makes the call again. It would give up after 400.
    response.writeHead(401).end();
  }
});
server.listen(Number(process.argv[2]), "127.0.0.1");
