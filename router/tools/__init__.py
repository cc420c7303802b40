"""Tools that the router runs itself, where an endpoint does not.

loop         offers a request's hosted tools to the model as functions, runs what it calls, tells it
             the results and asks again
answer       the one response that the client is given, made of the answers of several turns
hosted       what a hosted tool is to the loop
mcp_tool     tools of MCP servers, on the client in ``mcp``
search_tool  web search, on the providers in ``web_search``
compaction   conversations that are compacted here

The package ``tool_search`` searches in the tools that a request defers.
"""
