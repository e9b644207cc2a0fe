"""The fast path answers the few calls of an on-sale on an event loop with small handlers, without the framework.

An app contributes `dispatcher.Route`s whose handlers take a `request.Request` and return a `response.Reply` or raise a
`problems.Problem`. A handler never blocks the loop. It calls PostgreSQL and Redis with `thread_pool.run_in_thread`,
batches similar reads of many requests with a `batch_loader.BatchLoader`, and writes through group commit. An unusual
request (another method, an ended session, an odd header) is forwarded to the site, which answers it with the same
services: no route matches, or the handler raises `ForwardToSite` before it reads the body.
"""
