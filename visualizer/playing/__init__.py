"""The playground: a question about a workload, controls, and the run that results from them.

`questions` has the goals and their measures, `rerun` starts engines, `game` keeps the runs, `page` and
`words` draw them as HTML, and `playground` is the notebook's widget. The site's page uses the rest.
"""
