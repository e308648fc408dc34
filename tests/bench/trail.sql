-- A trail of so many committed changes of one quota, one a second and ten an entity, and as many registrations.
CREATE TEMPORARY TABLE numbers AS
SELECT n,
  (lpad(to_hex(1767225600000 + 1000 * n), 12, '0') || '70008000' || lpad(to_hex(n), 12, '0'))::uuid AS change_id,
  'user=user-' || n / 10 AS entity_id,
  '/config/users/user-' || n / 10 AS path,
  to_timestamp(1767225600 + n) AS time
FROM generate_series(1, %(events)s::bigint) AS n;

INSERT INTO intents (change_id, attempt, cluster, principal, writer, source, request_id, reason)
SELECT change_id, 1, %(cluster)s, 'User:' || mod(n, 50), 'writer', '127.0.0.1', md5(n::text), 'more for a while'
FROM numbers;

INSERT INTO intent_entities
  (change_id, attempt, position, cluster, entity_id, facet, path, version_read, czxid_read, keys, ops, before, after)
SELECT change_id, 1, 0, %(cluster)s, entity_id, 'client-quotas', path, mod(n, 10), n / 10, ARRAY['producer_byte_rate'],
  '[{"key": "producer_byte_rate", "value": 1048576.0}]',
  jsonb_build_object('consumer_byte_rate', '2097152', 'producer_byte_rate', (1048575 + n)::text),
  jsonb_build_object('consumer_byte_rate', '2097152', 'producer_byte_rate', (1048576 + n)::text)
FROM numbers;

INSERT INTO outcomes (change_id, attempt, cluster, committed, revision, time, versions)
SELECT change_id, 1, %(cluster)s, true, 1000000 + n, time, jsonb_build_object(path, 1 + mod(n, 10)) FROM numbers;

INSERT INTO registrations
  (event, cluster, entity_id, software_name, software_version, supported_configs, seen_at, seen_on)
SELECT 'seen', %(cluster)s, entity_id || ',client-id=app', 'librdkafka', '2.' || mod(n, 10),
  ARRAY['acks', 'session.timeout.ms'], time, time::date
FROM numbers;

VACUUM ANALYZE intents, intent_entities, outcomes, registrations
