"""A gateway: all routes of one server over several replicas, and a log of every routing decision.

    client --HTTP--> gateway --HTTP--> replica   tokens; the router chooses the replica
                     gateway <--HTTP-- replica   /events: its log, as any viewer reads it

replica_set.py   which replicas there are: a list of URLs, or what Ray Serve runs
ray_cluster.py   the replicas on Ray Serve: starts ray_driver.py, which has joined Ray, and outlives it
ray_replica.py   one replica, a Ray actor with a server; warm.py forks its processes
upstream.py      requests to a replica: headers, keys, and blocks of work that end with it
follower.py      follows one replica: its log, its clock, whether it can be reached
gateway.py       the replicas that can be reached, the router and the window of the cluster log
proxy.py         one request: route it, pass its output on, send it to another replica if need be
roles.py         prefill here, decode there: moves KV between replicas
lmtp.py          one LMTP connection, pinned to a replica
events.py        /events and /trace
health.py        how many replicas accept requests, and what is wrong with the others
operation.py     /health, /ready, the controls, routes that any replica can answer
metrics.py       /metrics: each replica's, and sums
app.py           `underglass serve --replica URL`: the routes, inside the middleware of one server
"""
