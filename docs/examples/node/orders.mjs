// An orders API that uses only Node's standard library and knows nothing of idempotency.
//
//   node orders.mjs 3000
//   onlyonce proxy --upstream http://127.0.0.1:3000 --single-tenant

import { createServer } from "node:http";

const orders = [];

const server = createServer(async (request, response) => {
  const answer = (status, value) => {
    response.writeHead(status, { "Content-Type": "application/json" });
    response.end(JSON.stringify(value));
  };
  if (request.method !== "POST") {
    return answer(200, orders);
  }
  let body = "";
  for await (const chunk of request) {
    body += chunk;
  }
  let item;
  try {
    item = JSON.parse(body).item;
  } catch {
    // below
  }
  if (item === undefined) {
    return answer(400, { error: 'send {"item": …}' });
  }
  const order = { id: orders.length + 1, item };
  orders.push(order);
  answer(201, order);
});

server.listen(Number(process.argv[2]), "127.0.0.1");
