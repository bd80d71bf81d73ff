// Payments without any idempotency, for onlyonce proxy.

import { createServer } from "node:http";
import { all, announce, count, invalid, pay } from "./payments.mjs";

const server = createServer(async (request, response) => {
  const send = ({ status, headers, body }) => {
    response.writeHead(status, { ...headers, "Content-Type": "application/json" });
    response.end(JSON.stringify(body));
  };
  const url = new URL(request.url, "http://localhost");
  if (request.method !== "POST") {
    const body = url.pathname === "/payments" ? all() : count(url.searchParams.get("reference"));
    return send({ status: 200, headers: {}, body });
  }
  try {
    let text = "";
    for await (const chunk of request) {
      text += chunk;
    }
    send(await pay(url.pathname.slice(1), JSON.parse(text)));
  } catch {
    send({ status: 400, headers: {}, body: invalid });
  }
});
server.listen(0, "127.0.0.1", () => announce(server.address()));
