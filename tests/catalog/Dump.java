import java.io.InputStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import kafka.server.KafkaConfig$;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.server.common.MetadataVersion;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints what Kafka's own classes define, one config a line, fields parted by tabs: entity, name, type, importance, "internal" or
 * "public", validator (empty for none), "none", "null" or "value", the default, and further facts as name=value. The first line is
 * Kafka's version. A line of the entity "metadata.version" has a feature level and the name of its version.
 *
 * Classes of the broker that were moved from one release to another are found by name.
 */
public class Dump {
    private static final List<String> DYNAMIC_BROKER_CONFIG =
            List.of("org.apache.kafka.server.config.DynamicBrokerConfig", "kafka.server.DynamicBrokerConfig$");
    private static final List<String> DYNAMIC_LISTENER_CONFIG = List.of(
            "org.apache.kafka.server.config.DynamicBrokerConfig$DynamicListenerConfig", "kafka.server.DynamicListenerConfig$");
    private static final List<String> DYNAMIC_CONFIG =
            List.of("org.apache.kafka.server.config.DynamicConfig$Broker", "kafka.server.DynamicConfig$Broker$");

    public static void main(String[] arguments) throws Exception {
        System.out.println(version());
        for (ConfigDef.ConfigKey key : sorted(ProducerConfig.configDef().configKeys())) {
            print("producer", key, List.of());
        }
        for (ConfigDef.ConfigKey key : sorted(ConsumerConfig.configDef().configKeys())) {
            print("consumer", key, List.of());
        }
        for (ConfigDef.ConfigKey key : sorted(LogConfig.configDefCopy().configKeys())) {
            print("topic", key, topic(key.name));
        }
        Map<String, ConfigDef.ConfigKey> broker = new TreeMap<>(definitions(DYNAMIC_CONFIG).configKeys());
        Map<String, ConfigDef.ConfigKey> fixed = KafkaConfig$.MODULE$.configDef().configKeys();
        // Those that have no static form.
        Set<String> dynamicOnly = new TreeSet<>(broker.keySet());
        dynamicOnly.removeAll(fixed.keySet());
        broker.putAll(fixed);
        Broker facts = new Broker();
        for (ConfigDef.ConfigKey key : sorted(broker)) {
            print("broker", key, facts.of(key.name, dynamicOnly.contains(key.name)));
        }
        if (Integer.parseInt(version().split("[.]")[0]) >= 4) {
            for (ConfigDef.ConfigKey key : sorted(definitions(List.of("org.apache.kafka.coordinator.group.GroupConfig")).configKeys())) {
                print("group", key, group(key.name, broker.keySet()));
            }
            String metrics = "org.apache.kafka.server.metrics.ClientMetricsConfigs";
            for (ConfigDef.ConfigKey key : sorted(definitions(List.of(metrics)).configKeys())) {
                print("client-metrics", key, List.of());
            }
        }
        for (MetadataVersion version : MetadataVersion.VERSIONS) {
            if (version.featureLevel() > 0 && version.compareTo(MetadataVersion.latestProduction()) <= 0) {
                System.out.println(String.join("\t", "metadata.version", Short.toString(version.featureLevel()), version.version()));
            }
        }
    }

    /** The version in the properties that Kafka puts into its jar of clients. */
    private static String version() throws Exception {
        Properties found = new Properties();
        try (InputStream stream = Dump.class.getResourceAsStream("/kafka/kafka-version.properties")) {
            found.load(stream);
        }
        return found.getProperty("version");
    }

    /** The first of these classes that there is. */
    private static Class<?> owner(List<String> names) throws ClassNotFoundException {
        for (String name : names) {
            try {
                return Class.forName(name);
            } catch (ClassNotFoundException absent) {
                // Another release has it.
            }
        }
        throw new ClassNotFoundException("There is none of " + names);
    }

    /** The instance of a Scala object; null for a class with static members. */
    private static Object module(Class<?> owner) throws Exception {
        return owner.getName().endsWith("$") ? owner.getField("MODULE$").get(null) : null;
    }

    /** The definitions that a class keeps in a field, which has had more than one name. */
    private static ConfigDef definitions(List<String> names) throws Exception {
        Class<?> owner = owner(names);
        for (Field field : owner.getDeclaredFields()) {
            if (field.getType() == ConfigDef.class) {
                field.setAccessible(true);
                return (ConfigDef) field.get(Modifier.isStatic(field.getModifiers()) ? null : module(owner));
            }
        }
        throw new IllegalStateException("There is no definition in " + owner);
    }

    /** The broker config that a group config falls back on. */
    private static List<String> group(String name, Set<String> broker) throws Exception {
        Optional<String> synonym = Optional.of("group." + name).filter(broker::contains);
        try {
            Method method = Class.forName("org.apache.kafka.coordinator.group.GroupConfig").getMethod("brokerSynonym", String.class);
            synonym = ((Optional<?>) method.invoke(null, name)).map(Object::toString);
        } catch (NoSuchMethodException absent) {
            // Releases without the table have the same names.
        }
        return synonym.map(found -> List.of("synonyms=" + found + ":1")).orElse(List.of());
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
        private final Class<?> owner = owner(DYNAMIC_BROKER_CONFIG);
        private final Map<?, ?> modes = (Map<?, ?>) owner.getMethod("dynamicConfigUpdateModes").invoke(module(owner));
        private final Method synonyms = owner.getMethod("brokerConfigSynonyms", String.class, boolean.class);
        private final Set<String> byListener = setOf(owner(DYNAMIC_LISTENER_CONFIG), "ReconfigurableConfigs");
        private final Set<String> byListenerOnly = setOf(owner, "DynamicSecurityConfigs");
        private final Set<String> byMechanism = setOf(owner, "ListenerMechanismConfigs");
        private final Set<String> clusterLevel = setOf(owner, "ClusterLevelListenerConfigs");

        Broker() throws Exception {
        }

        List<String> of(String name, boolean dynamicOnly) throws Exception {
            List<String> facts = new ArrayList<>();
            Object mode = dynamicOnly ? "cluster-wide" : modes.get(name);
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
            List<String> group = list(synonyms.invoke(module(owner), name, true));
            if (group.size() > 1) {
                facts.add("group=" + String.join(",", group));
            }
            return facts;
        }

        /** A set in a static field, under its name in Scala or in Java. */
        private static Set<String> setOf(Class<?> owner, String name) throws Exception {
            String constant = name.replaceAll("(?<=[a-z])(?=[A-Z])", "_").toUpperCase(java.util.Locale.ROOT);
            for (Field field : owner.getDeclaredFields()) {
                if (field.getName().equals(name) || field.getName().equals(constant)) {
                    field.setAccessible(true);
                    return new TreeSet<>(list(field.get(null)));
                }
            }
            throw new IllegalStateException("There is no " + name + " in " + owner);
        }

        private static List<String> list(Object values) {
            Iterable<?> found = values instanceof Iterable
                    ? (Iterable<?>) values
                    : scala.jdk.javaapi.CollectionConverters.asJava((scala.collection.Iterable<?>) values);
            List<String> names = new ArrayList<>();
            found.forEach(value -> names.add(value.toString()));
            return names;
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
        fields.addAll(list(key));
        if (fields.stream().anyMatch(field -> field.contains("\t") || field.contains("\n"))) {
            throw new IllegalStateException("A field of " + key.name + " holds a tab or a line feed");
        }
        System.out.println(String.join("\t", fields));
    }

    /** The rules of a list's validator about elements, which it does not print: no element twice, at least one element. */
    private static List<String> list(ConfigDef.ConfigKey key) {
        if (!(key.validator instanceof ConfigDef.ValidList)) {
            return List.of();
        }
        String element = key.validator.toString().replaceAll("^\\[|[,\\]].*$", "");
        List<Object> twice = element.isEmpty() ? List.of("a", "a") : List.of(element, element);
        List<String> facts = new ArrayList<>();
        if (!accepts(key, twice)) {
            facts.add("distinct");
        }
        if (!accepts(key, List.of())) {
            facts.add("nonEmpty");
        }
        return facts;
    }

    private static boolean accepts(ConfigDef.ConfigKey key, Object value) {
        try {
            key.validator.ensureValid(key.name, value);
            return true;
        } catch (RuntimeException refused) {
            return false;
        }
    }

    /** A validator in its own words; one of Kafka versions with the short names that it accepts besides those it lists. */
    private static String rule(ConfigDef.ConfigKey key) {
        String listed = key.validator.toString();
        String upper = listed.replaceAll("^\\[|[,\\]].*$", "").toUpperCase(java.util.Locale.ROOT);
        if (listed.matches("\\[[a-z_]+(, [a-z_]+)*\\]") && key.type == ConfigDef.Type.STRING && accepts(key, upper)) {
            return "(case insensitive) " + listed;
        }
        if (!listed.startsWith("[0.8.0, ")) {
            return listed;
        }
        Set<String> names = new LinkedHashSet<>();
        for (String name : listed.substring(1, listed.length() - 1).split(", ")) {
            for (String spelling : List.of(name.split("-")[0], name)) {
                if (accepts(key, spelling)) {
                    names.add(spelling);
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
