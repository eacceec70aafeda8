package headwater;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** What Python calls (columns/frame.py, which says what the text is). */
public final class RunTables {
    /** The frame of a table that a text describes. */
    public Dataset frame(SparkSession session, String text) throws Exception {
        JsonNode told = (JsonNode) new ObjectMapper().readTree(text);
        StructType schema = (StructType) DataType.fromJson(told.get("schema").toString());
        DataType[] types = new DataType[schema.length()];
        for (int n = 0; n < types.length; n++) {
            types[n] = schema.fields()[n].dataType();
        }
        RunSlices[] tasks = new RunSlices[told.get("tasks").size()];
        for (int n = 0; n < tasks.length; n++) {
            JsonNode said = at(told.get("tasks"), n);
            RunSlice[] slices = new RunSlice[said.size()];
            for (int m = 0; m < slices.length; m++) {
                slices[m] = slice(at(told.get("runs"), at(said, m).get("run").asInt()), at(said, m));
            }
            tasks[n] = new RunSlices(slices, types);
        }
        RunTable table = new RunTable(told.get("name").asText(), schema, tasks, told.get("rows").asLong());
        LogicalPlan relation = DataSourceV2Relation.create(table, Option.empty(), Option.empty());
        return org.apache.spark.sql.classic.Dataset$.MODULE$.ofRows(session, relation);
    }

    private static RunSlice slice(JsonNode run, JsonNode said) {
        RunSlice slice = new RunSlice();
        slice.path = run.get("path").asText();
        slice.arrow = run.get("arrow").asLong();
        slice.arrowLength = run.get("arrow_length").asLong();
        slice.pieceLength = run.get("piece_length").asInt();
        slice.sums = run.get("sums").asLong();
        slice.from = said.get("start").asInt();
        slice.to = said.get("stop").asInt();
        slice.hidden = new int[said.get("hidden").size()];
        for (int n = 0; n < slice.hidden.length; n++) {
            slice.hidden[n] = at(said.get("hidden"), n).asInt();
        }
        int columns = run.get("columns").size();
        slice.validity = new long[columns];
        slice.values = new long[columns];
        slice.chars = new long[columns];
        for (int n = 0; n < columns; n++) {
            JsonNode buffers = at(run.get("columns"), n);
            slice.validity[n] = at(buffers, 0).asLong();
            slice.values[n] = at(buffers, 1).asLong();
            slice.chars[n] = at(buffers, 2).asLong();
        }
        return slice;
    }

    /** Janino takes the method for that of a supertype, which returns less. */
    private static JsonNode at(JsonNode list, int n) {
        return (JsonNode) list.get(n);
    }
}
