import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.DescribeConfigsOptions;
import org.apache.kafka.clients.admin.FeatureMetadata;
import org.apache.kafka.clients.admin.ListConfigResourcesOptions;
import org.apache.kafka.clients.admin.QuorumInfo;
import org.apache.kafka.clients.admin.TopicListing;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;

/** One JSON object with everything that Kafka's AdminClient describes: arguments are the address and TYPE=name pairs. */
public final class Describe {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        ObjectNode all = JSON.createObjectNode();
        try (Admin admin = Admin.create(properties)) {
            all.put("clusterId", admin.describeCluster().clusterId().get());
            quotas(admin, all.putArray("quotas"));
            configs(admin, List.of(arguments).subList(1, arguments.length), all.putObject("configs"));
            ArrayNode listed = all.putArray("listed");
            Set<ConfigResource.Type> types = Set.of(ConfigResource.Type.GROUP, ConfigResource.Type.CLIENT_METRICS);
            for (ConfigResource each : admin.listConfigResources(types, new ListConfigResourcesOptions()).all().get()) {
                listed.add(each.type() + "=" + each.name());
            }
            ObjectNode topics = all.putObject("topics");
            for (TopicListing each : admin.listTopics().listings().get()) {
                topics.put(each.name(), each.topicId().toString());
            }
            features(admin.describeFeatures().featureMetadata().get(), all.putObject("features"));
            quorum(admin.describeMetadataQuorum().quorumInfo().get(), all.putObject("quorum"));
        }
        System.out.println(JSON.writeValueAsString(all));
    }

    private static void quotas(Admin admin, ArrayNode out) throws Exception {
        Map<ClientQuotaEntity, Map<String, Double>> found =
            admin.describeClientQuotas(ClientQuotaFilter.all()).entities().get();
        found.forEach((entity, values) -> {
            ObjectNode each = out.addObject();
            ObjectNode names = each.putObject("entity");
            entity.entries().forEach(names::put);
            ObjectNode quotas = each.putObject("values");
            values.forEach(quotas::put);
        });
    }

    private static void configs(Admin admin, List<String> wanted, ObjectNode out) throws Exception {
        List<ConfigResource> resources = new ArrayList<>();
        for (String each : wanted) {
            String[] parts = each.split("=", 2);
            resources.add(new ConfigResource(ConfigResource.Type.valueOf(parts[0]), parts[1]));
        }
        DescribeConfigsOptions options = new DescribeConfigsOptions().includeSynonyms(true);
        for (Map.Entry<ConfigResource, Config> each : admin.describeConfigs(resources, options).all().get().entrySet()) {
            ArrayNode entries = out.putArray(each.getKey().type() + "=" + each.getKey().name());
            for (ConfigEntry entry : each.getValue().entries()) {
                ObjectNode one = entries.addObject().put("name", entry.name()).put("value", entry.value());
                one.put("source", entry.source().name());
                one.put("readOnly", entry.isReadOnly()).put("sensitive", entry.isSensitive());
                ArrayNode synonyms = one.putArray("synonyms");
                for (ConfigEntry.ConfigSynonym synonym : entry.synonyms()) {
                    synonyms.addArray().add(synonym.name()).add(synonym.value()).add(synonym.source().name());
                }
            }
        }
    }

    private static void features(FeatureMetadata found, ObjectNode out) {
        ObjectNode finalized = out.putObject("finalized");
        found.finalizedFeatures().forEach((name, range) -> finalized.put(name, range.maxVersionLevel()));
        ObjectNode supported = out.putObject("supported");
        found.supportedFeatures().forEach(
            (name, range) -> supported.putArray(name).add(range.minVersion()).add(range.maxVersion()));
    }

    private static void quorum(QuorumInfo info, ObjectNode out) {
        out.put("leaderId", info.leaderId()).put("leaderEpoch", info.leaderEpoch());
        ArrayNode voters = out.putArray("voters");
        info.voters().forEach(voter -> voters.add(voter.replicaId()));
    }
}
