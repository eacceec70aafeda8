package headwater;

import java.util.OptionalLong;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.Statistics;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.connector.read.SupportsReportStatistics;
import org.apache.spark.sql.types.StructType;

/** The columns of slices that a query wants, and what Spark may know of them before it reads. */
public final class RunScan
        implements ScanBuilder, SupportsPushDownRequiredColumns, Scan, SupportsReportStatistics, Batch {
    private final String name;
    private final StructType schema;
    private final RunSlices[] tasks;
    private final long rows;
    private StructType wanted;

    public RunScan(String name, StructType schema, RunSlices[] tasks, long rows) {
        this.name = name;
        this.schema = schema;
        this.tasks = tasks;
        this.rows = rows;
        this.wanted = schema;
    }

    public void pruneColumns(StructType required) {
        wanted = required;
    }

    public Scan build() {
        return this;
    }

    public StructType readSchema() {
        return wanted;
    }

    public String description() {
        return "headwater " + name;
    }

    public Batch toBatch() {
        return this;
    }

    public Statistics estimateStatistics() {
        final long size = rows * Math.max(8, wanted.defaultSize());
        return new Statistics() {
            public OptionalLong sizeInBytes() {
                return OptionalLong.of(size);
            }

            public OptionalLong numRows() {
                return OptionalLong.of(rows);
            }
        };
    }

    public InputPartition[] planInputPartitions() {
        int[] columns = new int[wanted.length()];
        for (int n = 0; n < columns.length; n++) {
            columns[n] = schema.fieldIndex(wanted.fields()[n].name());
        }
        InputPartition[] found = new InputPartition[tasks.length];
        for (int n = 0; n < tasks.length; n++) {
            found[n] = tasks[n].select(columns);
        }
        return found;
    }

    public PartitionReaderFactory createReaderFactory() {
        return new RunReaders();
    }
}
