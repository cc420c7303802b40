// Vercel's AI SDK against a router: `node ai_sdk.mjs API CASE...` prints what each got, as JSON.
// API is `responses` or `chat`.
import { createOpenAI } from "@ai-sdk/openai";
import { embedMany, generateObject, generateText, stepCountIs, streamText, tool } from "ai";
import { z } from "zod";

globalThis.AI_SDK_LOG_WARNINGS = false;
const { BASE_URL, API_KEY, MODEL: name } = process.env;
const [, , api, ...wanted] = process.argv;
const provider = createOpenAI({ baseURL: BASE_URL, apiKey: API_KEY });
const common = {
  model: provider[api](name),
  maxRetries: 0,
  abortSignal: AbortSignal.timeout(20_000),
};

function weather(called) {
  return tool({
    description: "The weather in a city.",
    inputSchema: z.object({ city: z.string() }),
    execute: ({ city }) => {
      called.push(city);
      return { city, sky: "clear" };
    },
  });
}
const asks = (called) => ({
  ...common,
  prompt: "What is the weather in Paris?",
  tools: { get_weather: weather(called) },
  stopWhen: stepCountIs(3),
});

async function streamed(options) {
  const failures = [];
  const result = streamText({ ...options, onError: ({ error }) => failures.push(String(error)) });
  let pieces = 0;
  for await (const _ of result.textStream) pieces += 1;
  return { failures, pieces, result };
}

const cases = {
  async generate() {
    const made = await generateText({ ...common, system: "Be brief.", prompt: "count to 3" });
    const { totalTokens: total } = made.usage;
    return { text: made.text, reason: made.finishReason, total };
  },
  async stream() {
    const { failures, pieces, result } = await streamed({ ...common, prompt: "count to 9" });
    const { totalTokens: total } = await result.usage;
    return { failures, pieces, text: await result.text, reason: await result.finishReason, total };
  },
  async tool() {
    const called = [];
    const made = await generateText(asks(called));
    return { called, text: made.text, steps: made.steps.length };
  },
  async stream_tool() {
    const called = [];
    const { failures, result } = await streamed(asks(called));
    return { failures, called, text: await result.text, steps: (await result.steps).length };
  },
  async object() {
    const schema = z.object({ name: z.string(), age: z.number().int() });
    const made = await generateObject({ ...common, schema, prompt: "Ann is 33." });
    return made.object;
  },
  async history() {
    const messages = [{ role: "user", content: "My name is Ann." }];
    const first = await generateText({ ...common, messages });
    messages.push(...first.response.messages, { role: "user", content: "What is my name?" });
    return { text: (await generateText({ ...common, messages })).text };
  },
  async chain() {
    const first = await generateText({ ...common, prompt: "My name is Ann." });
    const { responseId } = first.providerMetadata.openai;
    const second = await generateText({
      ...common,
      prompt: "What is my name?",
      providerOptions: { openai: { previousResponseId: responseId } },
    });
    return { text: second.text };
  },
  async embeddings() {
    const made = await embedMany({
      model: provider.embeddingModel(name),
      values: ["a", "b"],
      maxRetries: 0,
    });
    return { count: made.embeddings.length, same: made.embeddings[0].length };
  },
};

const told = await Promise.all(wanted.map((wish) => cases[wish]()));
console.log(JSON.stringify(told));
