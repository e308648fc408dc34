-- The events that no later clearing hides: one of their own entity, or one of the whole cluster.
SELECT entity_id, software_name, software_version, supported_configs, seen_at
FROM registration_events seen
WHERE event = 'seen'
  AND id > coalesce((SELECT max(id) FROM registration_events WHERE event = 'cleared' AND entity_id IS NULL), 0)
  AND id > coalesce(
    (SELECT max(id) FROM registration_events one WHERE event = 'cleared' AND one.entity_id = seen.entity_id), 0)
