// OpenAI's npm package against a router: `node openai.mjs CASE...` prints what each got, as JSON.
import OpenAI from "openai";
import { zodResponseFormat, zodTextFormat } from "openai/helpers/zod";
import { z } from "zod";

const { BASE_URL, API_KEY, MODEL: model } = process.env;
const client = new OpenAI({ baseURL: BASE_URL, apiKey: API_KEY, maxRetries: 0, timeout: 20_000 });

const parameters = {
  type: "object",
  properties: { city: { type: "string" } },
  required: ["city"],
  additionalProperties: false,
};
const weather = { type: "function", name: "get_weather", strict: true, parameters };
const chatWeather = { type: "function", function: { name: "get_weather", strict: true, parameters } };
const question = "What is the weather in Paris?";
const Person = z.object({ name: z.string(), age: z.number().int() });

async function texts(stream, textOf) {
  let text = "";
  let pieces = 0;
  for await (const event of stream) {
    const piece = textOf(event);
    if (piece) {
      text += piece;
      pieces += 1;
    }
  }
  return { text, pieces };
}

const cases = {
  async create() {
    const made = await client.responses.create({ model, input: "count to 3" });
    return { text: made.output_text, status: made.status, total: made.usage.total_tokens };
  },
  async stream() {
    const stream = client.responses.stream({ model, input: "count to 9" });
    const told = await texts(stream, (event) =>
      event.type === "response.output_text.delta" ? event.delta : "",
    );
    return { ...told, final: (await stream.finalResponse()).output_text };
  },
  async chain() {
    const first = await client.responses.create({ model, input: "My name is Ann." });
    const second = await client.responses.create({
      model,
      input: "What is my name?",
      previous_response_id: first.id,
    });
    const kept = await client.responses.retrieve(second.id);
    return { text: kept.output_text, previous: second.previous_response_id === first.id };
  },
  async tool() {
    const first = await client.responses.create({ model, input: question, tools: [weather] });
    const call = first.output.find((item) => item.type === "function_call");
    const output = JSON.stringify({ sky: "clear", ...JSON.parse(call.arguments) });
    const second = await client.responses.create({
      model,
      previous_response_id: first.id,
      input: [{ type: "function_call_output", call_id: call.call_id, output }],
      tools: [weather],
    });
    return { name: call.name, text: second.output_text };
  },
  async parse() {
    const made = await client.responses.parse({
      model,
      input: "Ann is 33.",
      text: { format: zodTextFormat(Person, "person") },
    });
    return made.output_parsed;
  },
  async chat() {
    const messages = [{ role: "user", content: "count to 3" }];
    const made = await client.chat.completions.create({ model, messages });
    return { text: made.choices[0].message.content, total: made.usage.total_tokens };
  },
  async chat_stream() {
    const stream = client.chat.completions.stream({
      model,
      messages: [{ role: "user", content: "count to 9" }],
      stream_options: { include_usage: true },
    });
    const told = await texts(stream, (chunk) => chunk.choices[0]?.delta?.content);
    const final = await stream.finalChatCompletion();
    return { ...told, final: final.choices[0].message.content, total: final.usage.total_tokens };
  },
  async chat_tool() {
    const called = [];
    const runner = client.chat.completions.runTools({
      model,
      stream: true,
      messages: [{ role: "user", content: question }],
      tools: [
        {
          type: "function",
          function: {
            ...chatWeather.function,
            parse: JSON.parse,
            function: ({ city }) => {
              called.push(city);
              return { city, sky: "clear" };
            },
          },
        },
      ],
    });
    return { called, text: await runner.finalContent() };
  },
  async chat_parse() {
    const made = await client.chat.completions.parse({
      model,
      messages: [{ role: "user", content: "Ann is 33." }],
      response_format: zodResponseFormat(Person, "person"),
    });
    return made.choices[0].message.parsed;
  },
  async embeddings() {
    const packed = await client.embeddings.create({ model, input: ["a", "b"] });
    const plain = await client.embeddings.create({
      model,
      input: ["a", "b"],
      encoding_format: "float",
    });
    const gap = (one, other) => Math.max(...one.map((value, i) => Math.abs(value - other[i])));
    return {
      count: packed.data.length,
      gap: gap(packed.data[1].embedding, plain.data[1].embedding),
    };
  },
  async errors() {
    try {
      await client.responses.create({ model: "no-such-model", input: "hi" });
    } catch (error) {
      return { kind: error.constructor.name, status: error.status, code: error.code };
    }
    return {};
  },
};

const wanted = process.argv.slice(2);
const told = await Promise.all(wanted.map((name) => cases[name]()));
console.log(JSON.stringify(told));
