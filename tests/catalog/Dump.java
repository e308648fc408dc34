import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import kafka.server.DynamicBrokerConfig$;
import kafka.server.KafkaConfig$;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.utils.AppInfoParser;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints what Kafka's own classes define, one config a line, fields parted by tabs: entity, name, type, importance, "internal" or
 * "public", validator (empty for none), "none", "null" or "value", the default, and further facts as name=value. The first line is
 * Kafka's version.
 */
public class Dump {
    public static void main(String[] arguments) throws Exception {
        System.out.println(AppInfoParser.getVersion());
        for (ConfigDef.ConfigKey key : sorted(ProducerConfig.configDef().configKeys())) {
            print("producer", key, List.of());
        }
        for (ConfigDef.ConfigKey key : sorted(ConsumerConfig.configDef().configKeys())) {
            print("consumer", key, List.of());
        }
        for (ConfigDef.ConfigKey key : sorted(LogConfig.configDefCopy().configKeys())) {
            print("topic", key, topic(key.name));
        }
        Map<String, ConfigDef.ConfigKey> broker = new TreeMap<>(dynamicDefinitions().configKeys());
        Map<String, ConfigDef.ConfigKey> fixed = KafkaConfig$.MODULE$.configDef().configKeys();
        // Those that have no static form.
        Set<String> dynamicOnly = new TreeSet<>(broker.keySet());
        dynamicOnly.removeAll(fixed.keySet());
        broker.putAll(fixed);
        Broker facts = new Broker();
        for (ConfigDef.ConfigKey key : sorted(broker)) {
            print("broker", key, facts.of(key.name, dynamicOnly.contains(key.name)));
        }
    }

    /** The definitions of what is dynamic, in a field that has had more than one name. */
    private static ConfigDef dynamicDefinitions() throws Exception {
        Class<?> owner = Class.forName("kafka.server.DynamicConfig$Broker$");
        for (Field field : owner.getDeclaredFields()) {
            if (field.getType() == ConfigDef.class) {
                field.setAccessible(true);
                return (ConfigDef) field.get(owner.getField("MODULE$").get(null));
            }
        }
        throw new IllegalStateException("There is no definition in " + owner);
    }

    private static Collection<ConfigDef.ConfigKey> sorted(Map<String, ConfigDef.ConfigKey> keys) {
        return new TreeMap<>(keys).values();
    }

    /** The broker configs that a topic config falls back on, each with the factor that turns its unit into the topic's. */
    private static List<String> topic(String name) {
        List<ConfigSynonym> found = ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS.getOrDefault(name, List.of());
        if (found.isEmpty()) {
            return List.of();
        }
        return List.of("synonyms=" + found.stream()
                .map(synonym -> synonym.name() + ":" + synonym.converter().apply("1"))
                .collect(Collectors.joining(",")));
    }

    /** What is particular to broker configs. */
    private static class Broker {
        private final Map<String, String> modes = DynamicBrokerConfig$.MODULE$.dynamicConfigUpdateModes();
        private final Set<String> byListener = setOf("kafka.server.DynamicListenerConfig$", "ReconfigurableConfigs");
        private final Set<String> byListenerOnly = setOf("kafka.server.DynamicBrokerConfig$", "DynamicSecurityConfigs");
        private final Set<String> byMechanism = setOf("kafka.server.DynamicBrokerConfig$", "ListenerMechanismConfigs");
        private final Set<String> clusterLevel = setOf("kafka.server.DynamicBrokerConfig$", "ClusterLevelListenerConfigs");

        Broker() throws Exception {
        }

        List<String> of(String name, boolean dynamicOnly) {
            List<String> facts = new ArrayList<>();
            String mode = dynamicOnly ? "cluster-wide" : modes.get(name);
            facts.add("scope=" + (mode == null ? "read-only" : mode));
            if (dynamicOnly) {
                facts.add("dynamicOnly");
            }
            if (byMechanism.contains(name)) {
                facts.add("prefix=mechanism");
            } else if (byListener.contains(name) || byListenerOnly.contains(name) || clusterLevel.contains(name)) {
                facts.add("prefix=listener");
            }
            if (byListenerOnly.contains(name)) {
                facts.add("prefixOnly");
            }
            if (clusterLevel.contains(name)) {
                facts.add("clusterLevel");
            }
            List<String> group = list(DynamicBrokerConfig$.MODULE$.brokerConfigSynonyms(name, true));
            if (group.size() > 1) {
                facts.add("group=" + String.join(",", group));
            }
            return facts;
        }

        private static Set<String> setOf(String owner, String name) throws Exception {
            Class<?> found = Class.forName(owner);
            Field field = found.getDeclaredField(name);
            field.setAccessible(true);
            return new TreeSet<>(list((scala.collection.Iterable<?>) field.get(null)));
        }

        private static List<String> list(scala.collection.Iterable<?> values) {
            return scala.jdk.javaapi.CollectionConverters.asJavaCollection(values).stream()
                    .map(Object::toString)
                    .collect(Collectors.toList());
        }
    }

    private static void print(String entity, ConfigDef.ConfigKey key, List<String> facts) {
        String kind = !key.hasDefault() ? "none" : key.defaultValue == null ? "null" : "value";
        List<String> fields = new ArrayList<>(List.of(
                entity,
                key.name,
                key.type.name(),
                key.importance.name(),
                key.internalConfig ? "internal" : "public",
                key.validator == null ? "" : rule(key),
                kind,
                kind.equals("value") ? text(key.defaultValue) : ""));
        fields.addAll(facts);
        if (fields.stream().anyMatch(field -> field.contains("\t") || field.contains("\n"))) {
            throw new IllegalStateException("A field of " + key.name + " holds a tab or a line feed");
        }
        System.out.println(String.join("\t", fields));
    }

    /** A validator in its own words; one of Kafka versions with the short names that it accepts besides those it lists. */
    private static String rule(ConfigDef.ConfigKey key) {
        String listed = key.validator.toString();
        if (!listed.startsWith("[0.8.0, ")) {
            return listed;
        }
        Set<String> names = new LinkedHashSet<>();
        for (String name : listed.substring(1, listed.length() - 1).split(", ")) {
            for (String spelling : List.of(name.split("-")[0], name)) {
                try {
                    key.validator.ensureValid(key.name, spelling);
                    names.add(spelling);
                } catch (RuntimeException refused) {
                    // Not a name of this version.
                }
            }
        }
        return "version [" + String.join(", ", names) + "]";
    }

    private static String text(Object value) {
        if (value instanceof List) {
            return ((List<?>) value).stream().map(Dump::text).collect(Collectors.joining(","));
        }
        return value instanceof Class ? ((Class<?>) value).getName() : value.toString();
    }
}
