"""Who used what, what it cost, and what they may use.

recorder          makes a usage record of every attempt, with what it cost
ledger, journal   keep the records, so that they survive the end of the process
report, totals    who used how much in a time
rates             prices per token, and what tokens come to by them
limits, budgets   so much per minute, and so much in a day, a week, a month: pure
rate_limiter      the contract of what counts them, in memory and in Redis
keys, virtual_keys
                  those in the database
accounting        all of it, put together
"""
