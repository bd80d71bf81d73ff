-- KEYS: identity. Returns it, or '' if there is none, and the time.
return {redis.call('GET', KEYS[1]) or '', clock()}
