import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ScramCredentialInfo;
import org.apache.kafka.clients.admin.ScramMechanism;
import org.apache.kafka.clients.admin.UserScramCredentialAlteration;
import org.apache.kafka.clients.admin.UserScramCredentialDeletion;
import org.apache.kafka.clients.admin.UserScramCredentialUpsertion;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's AdminClient behind JSON lines: {"call", "arguments"} on standard input, {"result"} or {"fault"} on standard
 * output, one answer a line, in order. It ends with its input. Errors that Kafka answers are results:
 * {"code", "name", "message"}.
 */
public final class Admin {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long LIMIT_S = 120;

    private final String bootstrap;
    private final AdminClient client;

    private Admin(String bootstrap) {
        this.bootstrap = bootstrap;
        this.client = AdminClient.create(properties(bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // nothing else may come between the answers
        Admin admin = new Admin(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                JsonNode request = JSON.readTree(line);
                answer.set("result", admin.call(request.get("call").asText(), request.get("arguments")));
            } catch (Exception | AssertionError | LinkageError fault) {
                answer.put("fault", fault.toString());
            }
            out.println(JSON.writeValueAsString(answer));
        }
        System.exit(0); // the client's threads are not worth waiting for
    }

    private JsonNode call(String call, JsonNode given) throws Exception {
        switch (call) {
            case "describeQuotas":
                return describeQuotas(given);
            case "alterQuotas":
                return alterQuotas(given);
            case "describeConfigs":
                return describeConfigs(given);
            case "alterConfigs":
                return alterConfigs(given);
            case "createTopics":
                return createTopics(given);
            case "deleteTopics":
                return outcome(client.deleteTopics(List.of(given.get("name").asText())).all());
            case "alterScram":
                return alterScram(given);
            case "describeScram":
                return describeScram();
            case "login":
                return login(given);
            case "produce":
                return produce(given);
            case "configCommand":
                return configCommand(given);
            default:
                throw new IllegalArgumentException("no such call: " + call);
        }
    }

    private JsonNode describeQuotas(JsonNode given) throws Exception {
        List<ClientQuotaFilterComponent> components = new ArrayList<>();
        for (JsonNode item : given.get("components")) {
            String type = item.get("entityType").asText();
            switch (item.get("matchType").asText()) {
                case "exact":
                    components.add(ClientQuotaFilterComponent.ofEntity(type, item.get("match").asText()));
                    break;
                case "default":
                    components.add(ClientQuotaFilterComponent.ofDefaultEntity(type));
                    break;
                default:
                    components.add(ClientQuotaFilterComponent.ofEntityType(type));
            }
        }
        ClientQuotaFilter filter = given.path("strict").asBoolean()
            ? ClientQuotaFilter.containsOnly(components)
            : ClientQuotaFilter.contains(components);
        ArrayNode entries = JSON.createArrayNode();
        try {
            client.describeClientQuotas(filter).entities().get(LIMIT_S, TimeUnit.SECONDS).forEach((entity, values) -> {
                ObjectNode entry = entries.addObject();
                ObjectNode names = entry.putObject("entity");
                entity.entries().forEach(names::put);
                ObjectNode quotas = entry.putObject("quotas");
                values.forEach(quotas::put);
            });
        } catch (ExecutionException refused) {
            return error(refused.getCause());
        }
        return error(null).set("entries", entries);
    }

    private JsonNode alterQuotas(JsonNode given) throws Exception {
        List<ClientQuotaAlteration> alterations = new ArrayList<>();
        for (JsonNode item : given.get("entries")) {
            Map<String, String> names = new HashMap<>();
            item.get("entity").fields().forEachRemaining(field -> names.put(field.getKey(), text(field.getValue())));
            List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
            for (JsonNode op : item.get("ops")) {
                // NaN and the infinities have no JSON form of their own: they come as texts.
                Double value = op.get(1).isNull() ? null : Double.valueOf(op.get(1).asText());
                ops.add(new ClientQuotaAlteration.Op(op.get(0).asText(), value));
            }
            alterations.add(new ClientQuotaAlteration(new ClientQuotaEntity(names), ops));
        }
        AlterClientQuotasOptions options =
            new AlterClientQuotasOptions().validateOnly(given.path("validateOnly").asBoolean());
        Map<ClientQuotaEntity, KafkaFuture<Void>> futures = client.alterClientQuotas(alterations, options).values();
        ArrayNode results = JSON.createArrayNode();
        for (ClientQuotaAlteration alteration : alterations) {
            results.add(outcome(futures.get(alteration.entity())));
        }
        return results;
    }

    private JsonNode describeConfigs(JsonNode given) throws Exception {
        List<ConfigResource> resources = new ArrayList<>();
        given.get("resources").forEach(item -> resources.add(resource(item)));
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        Map<ConfigResource, KafkaFuture<Config>> futures = client.describeConfigs(resources, options).values();
        ArrayNode results = JSON.createArrayNode();
        for (ConfigResource resource : resources) {
            try {
                ObjectNode configs = JSON.createObjectNode();
                for (ConfigEntry entry : futures.get(resource).get(LIMIT_S, TimeUnit.SECONDS).entries()) {
                    ObjectNode shown = configs.putObject(entry.name());
                    shown.put("value", entry.value());
                    shown.put("source", entry.source().name());
                    shown.put("type", entry.type().name());
                    shown.put("readOnly", entry.isReadOnly());
                    shown.put("sensitive", entry.isSensitive());
                    ArrayNode synonyms = shown.putArray("synonyms");
                    for (ConfigEntry.ConfigSynonym synonym : entry.synonyms()) {
                        synonyms.addArray().add(synonym.name()).add(synonym.value()).add(synonym.source().name());
                    }
                }
                results.add(error(null).set("configs", configs));
            } catch (ExecutionException refused) {
                results.add(error(refused.getCause()));
            }
        }
        return results;
    }

    private JsonNode alterConfigs(JsonNode given) throws Exception {
        Map<ConfigResource, Collection<AlterConfigOp>> alterations = new LinkedHashMap<>();
        for (JsonNode item : given.get("resources")) {
            List<AlterConfigOp> ops = new ArrayList<>();
            for (JsonNode op : item.get("ops")) {
                ConfigEntry entry = new ConfigEntry(op.get(0).asText(), text(op.get(2)));
                ops.add(new AlterConfigOp(entry, AlterConfigOp.OpType.valueOf(op.get(1).asText())));
            }
            alterations.put(resource(item.get("resource")), ops);
        }
        AlterConfigsOptions options = new AlterConfigsOptions().validateOnly(given.path("validateOnly").asBoolean());
        Map<ConfigResource, KafkaFuture<Void>> futures =
            client.incrementalAlterConfigs(alterations, options).values();
        ArrayNode results = JSON.createArrayNode();
        for (ConfigResource resource : alterations.keySet()) {
            results.add(outcome(futures.get(resource)));
        }
        return results;
    }

    private JsonNode createTopics(JsonNode given) throws Exception {
        Map<String, String> configs = new HashMap<>();
        given.path("configs").fields().forEachRemaining(field -> configs.put(field.getKey(), text(field.getValue())));
        List<NewTopic> topics = new ArrayList<>();
        given.get("names").forEach(name -> topics.add(new NewTopic(name.asText(), 1, (short) 1).configs(configs)));
        return outcome(client.createTopics(topics).all());
    }

    private JsonNode alterScram(JsonNode given) throws Exception {
        String user = given.get("user").asText();
        ScramMechanism mechanism = ScramMechanism.fromMechanismName(given.get("mechanism").asText());
        UserScramCredentialAlteration alteration = given.get("password").isNull()
            ? new UserScramCredentialDeletion(user, mechanism)
            : new UserScramCredentialUpsertion(
                user, new ScramCredentialInfo(mechanism, 4096), given.get("password").asText());
        return outcome(client.alterUserScramCredentials(List.of(alteration)).all());
    }

    private JsonNode describeScram() throws Exception {
        Map<String, ArrayNode> users = new TreeMap<>();
        client.describeUserScramCredentials().all().get(LIMIT_S, TimeUnit.SECONDS).forEach((user, described) -> {
            ArrayNode mechanisms = users.computeIfAbsent(user, name -> JSON.createArrayNode());
            described.credentialInfos().forEach(info -> mechanisms.add(info.mechanism().mechanismName()));
        });
        return JSON.valueToTree(users);
    }

    /** Log in with a user and a password and ask for the cluster's nodes. */
    private JsonNode login(JsonNode given) throws Exception {
        try (AdminClient user = AdminClient.create(userProperties(given))) {
            return outcome(user.describeCluster().nodes());
        }
    }

    /**
     * Produce as a user, as fast as can be, for a warm-up and then for a while: the bytes of values acknowledged in that
     * while, its length in seconds, and the producer's own metric of how long it was throttled. It ends before when it
     * was throttled, if told so, when enough was sent, and with the first error.
     */
    private JsonNode produce(JsonNode given) throws Exception {
        Properties properties = userProperties(given);
        properties.put("buffer.memory", "1048576");
        properties.put("max.block.ms", "120000");
        properties.put("batch.size", "32768");
        byte[] value = new byte[given.get("valueBytes").asInt()];
        long most = given.path("mostBytes").asLong(Long.MAX_VALUE);
        boolean untilThrottled = given.path("untilThrottled").asBoolean();
        AtomicLong acknowledged = new AtomicLong();
        AtomicReference<Exception> failure = new AtomicReference<>();
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        try {
            long warm = System.nanoTime() + (long) (given.path("warmUpS").asDouble() * 1e9);
            long end = warm + (long) (given.get("seconds").asDouble() * 1e9);
            long from = System.nanoTime();
            long before = 0;
            boolean measuring = false;
            for (long number = 0; failure.get() == null && number * value.length < most; number++) {
                long now = System.nanoTime();
                if (!measuring && now >= warm) {
                    measuring = true;
                    from = now;
                    before = acknowledged.get();
                }
                if (now >= end || untilThrottled && throttledMs(producer) > 0) {
                    break;
                }
                // With a key, since the broker's topics are compacted.
                byte[] key = Long.toString(number).getBytes(StandardCharsets.UTF_8);
                producer.send(new ProducerRecord<>(given.get("topic").asText(), key, value), (sent, error) -> {
                    if (error == null) {
                        acknowledged.addAndGet(value.length);
                    } else {
                        failure.compareAndSet(null, error);
                    }
                });
            }
            if (most != Long.MAX_VALUE) {
                producer.flush();
            }
            double seconds = (System.nanoTime() - from) / 1e9;
            return error(failure.get())
                .put("bytes", acknowledged.get() - before)
                .put("seconds", seconds)
                .put("throttledMs", throttledMs(producer));
        } finally {
            producer.close(Duration.ZERO);
        }
    }

    private static double throttledMs(KafkaProducer<?, ?> producer) {
        return producer.metrics().entrySet().stream()
            .filter(metric -> metric.getKey().name().equals("produce-throttle-time-avg"))
            .mapToDouble(metric -> (Double) metric.getValue().metricValue())
            .filter(average -> !Double.isNaN(average))
            .sum();
    }

    private static Properties userProperties(JsonNode given) {
        Properties properties = properties(given.get("bootstrap").asText());
        properties.put("security.protocol", "SASL_PLAINTEXT");
        properties.put("sasl.mechanism", given.get("mechanism").asText());
        properties.put("sasl.jaas.config", String.format(
            "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"%s\" password=\"%s\";",
            given.get("user").asText(), given.get("password").asText()));
        return properties;
    }

    /**
     * Run kafka-configs.sh's class in this process: its exit status and all that it printed. Found by its name, because
     * Maven has no such class from 4.4 on, and all other calls work there too.
     */
    private JsonNode configCommand(JsonNode given) throws Exception {
        List<String> arguments = new ArrayList<>(List.of("--bootstrap-server", bootstrap));
        given.get("arguments").forEach(argument -> arguments.add(argument.asText()));
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream printed = new PrintStream(bytes, true, StandardCharsets.UTF_8);
        PrintStream out = System.out;
        PrintStream err = System.err;
        int status = 0;
        exitsThrow();
        Method command = Class.forName("kafka.admin.ConfigCommand").getMethod("main", String[].class);
        System.setOut(printed);
        System.setErr(printed);
        try {
            // It prints by Scala's console, which keeps the stream that it was first given.
            scala.Console.withOut(printed, () -> invoke(command, (Object) arguments.toArray(new String[0])));
        } catch (Exited exited) {
            status = exited.status;
        } finally {
            System.setOut(out);
            System.setErr(err);
        }
        return JSON.createObjectNode().put("status", status).put("output", bytes.toString(StandardCharsets.UTF_8));
    }

    /** Make Kafka's own way out of the process throw. */
    private static void exitsThrow() throws ReflectiveOperationException {
        Class<?> procedure = Class.forName("org.apache.kafka.common.utils.Exit$Procedure");
        Object thrower = Proxy.newProxyInstance(procedure.getClassLoader(), new Class<?>[] {procedure}, (self, method, how) -> {
            throw new Exited((Integer) how[0]);
        });
        procedure.getEnclosingClass().getMethod("setExitProcedure", procedure).invoke(null, thrower);
    }

    private static Object invoke(Method method, Object... arguments) {
        try {
            return method.invoke(null, arguments);
        } catch (InvocationTargetException thrown) {
            if (thrown.getCause() instanceof Exited exited) {
                throw exited;
            }
            throw new IllegalStateException(thrown.getCause());
        } catch (IllegalAccessException hidden) {
            throw new IllegalStateException(hidden);
        }
    }

    private static Properties properties(String bootstrap) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", bootstrap);
        properties.put("request.timeout.ms", "60000");
        properties.put("default.api.timeout.ms", "120000");
        return properties;
    }

    private static ConfigResource resource(JsonNode item) {
        return new ConfigResource(ConfigResource.Type.valueOf(item.get(0).asText()), item.get(1).asText());
    }

    private static String text(JsonNode node) {
        return node == null || node.isNull() ? null : node.asText();
    }

    private static ObjectNode outcome(KafkaFuture<?> future) throws Exception {
        try {
            future.get(LIMIT_S, TimeUnit.SECONDS);
            return error(null);
        } catch (ExecutionException refused) {
            return error(refused.getCause());
        }
    }

    private static ObjectNode error(Throwable cause) {
        Errors error = cause == null ? Errors.NONE : Errors.forException(cause);
        String message = cause == null ? null : cause.getMessage();
        return JSON.createObjectNode().put("code", error.code()).put("name", error.name()).put("message", message);
    }

    private static final class Exited extends RuntimeException {
        private static final long serialVersionUID = 1;
        private final int status;

        private Exited(int status) {
            super("exit status " + status);
            this.status = status;
        }
    }
}
