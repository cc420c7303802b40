"""Dashboards and alert rules for Pointsman's metrics.

boards/         what is on the dashboards, in Python
panels.py       how a panel and a dashboard are made of it
promql.py       the queries' few forms
make.py         ``python -m grafana.make`` writes what is generated
table.py        the table of all metrics in README.md
dashboards/     generated: what Grafana loads
rules/          recording and alert rules for Prometheus
provisioning/   tells Grafana of both
"""
