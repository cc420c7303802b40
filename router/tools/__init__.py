"""Tools that the router runs itself, where an endpoint does not.

    mcp         sessions with MCP servers
    web_search  search services, the pages of the web, citations
"""
