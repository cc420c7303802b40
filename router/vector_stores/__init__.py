"""Vector stores: files whose text can be searched by meaning and by words.

service      what the routes and the tool ``file_search`` call: stores, their files, searches
objects      stores, their files and batches, as the API has them
records      their tables in the state's database
requests     what clients send, checked
ingestion    in the background: extract, cut, embed, index
chunking     pure: a text in overlapping pieces
embedding    what makes vectors of the pieces: the local model, or an endpoint of the fleet
filters      conditions on the attributes of files, as SQL
index        what an index of pieces promises
sqlite_index, postgres_index
             the index: in a file of SQLite's by sqlite-vec and FTS5, in PostgreSQL by pgvector
             and tsvector
searching    a search by meaning and by words
ranking      pure: two rankings become one
"""
