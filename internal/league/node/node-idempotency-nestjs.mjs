// Payments behind @node-idempotency/nestjs, configured as its README shows. The decorators are
// called by hand, so that no compiler is needed:
// https://github.com/mahendraHegde/node-idempotency/blob/622b33f3edb63ee2e864187bf564539c8dedea9d/packages/plugin-nestjs/Readme.md

import "reflect-metadata";
import { BadRequestException, Controller, Get, Module, Post, Query, Req, Res } from "@nestjs/common";
import { NestFactory } from "@nestjs/core";
import nodeIdempotency from "@node-idempotency/nestjs";
import { all, announce, count, pay } from "./payments.mjs";

const { Idempotent, NodeIdempotencyModule, StorageAdapterEnum } = nodeIdempotency;

class Payments {
  pay(request, response) {
    return this.run("payments", request, response);
  }

  refund(request, response) {
    return this.run("refunds", request, response);
  }

  async run(operation, request, response) {
    const { status, headers, body } = await pay(operation, request.body);
    if (status !== 201) {
      throw new BadRequestException(body);
    }
    response.set(headers);
    return body;
  }

  all() {
    return all();
  }

  count(reference) {
    return count(reference);
  }
}

const decorate = (name, ...decorators) => {
  for (const decorator of decorators) {
    decorator(Payments.prototype, name, Object.getOwnPropertyDescriptor(Payments.prototype, name));
  }
};
for (const name of ["pay", "refund"]) {
  Req()(Payments.prototype, name, 0);
  Res({ passthrough: true })(Payments.prototype, name, 1);
}
decorate("pay", Post("payments"), Idempotent());
decorate("refund", Post("refunds"), Idempotent());
decorate("all", Get("payments"));
Query("reference")(Payments.prototype, "count", 0);
decorate("count", Get("payments/count"));
Controller()(Payments);

class App {}
Module({
  imports: [NodeIdempotencyModule.forRootAsync({ storage: { adapter: StorageAdapterEnum.memory } })],
  controllers: [Payments],
})(App);

const app = await NestFactory.create(App, { logger: ["error", "warn"] });
await app.listen(0, "127.0.0.1");
announce(app.getHttpServer().address());
