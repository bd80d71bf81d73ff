// Payments behind express-idempotency, configured as its README shows, with a handler that does
// nothing after a hit:
// https://github.com/VilledeMontreal/express-idempotency/blob/6b054b1159229995800be318489ebcdb26cc50e8/README.md#getting-started

import express from "express";
import expressIdempotency from "express-idempotency";
import { all, announce, count, pay } from "./payments.mjs";

const { getSharedIdempotencyService, idempotency } = expressIdempotency;

const post = (operation) => async (request, response) => {
  if (getSharedIdempotencyService().isHit(request)) {
    return;
  }
  const { status, headers, body } = await pay(operation, request.body);
  response.status(status).set(headers).json(body);
};

const app = express();
app.use(express.json());
app.post("*", idempotency());
app.post("/payments", post("payments"));
app.post("/refunds", post("refunds"));
app.get("/payments", (request, response) => response.json(all()));
app.get("/payments/count", (request, response) => response.json(count(request.query.reference)));
const server = app.listen(0, "127.0.0.1", () => announce(server.address()));
