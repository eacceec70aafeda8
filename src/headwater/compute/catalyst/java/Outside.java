package headwater;

import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.fs.FileStatus;
import org.apache.spark.sql.catalyst.expressions.PlanExpression;
import org.apache.spark.sql.catalyst.plans.logical.*;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.DataSource;
import org.apache.spark.sql.execution.datasources.HadoopFsRelation;
import org.apache.spark.sql.execution.datasources.LogicalRelation;
import org.apache.spark.sql.execution.datasources.PartitioningAwareFileIndex;
import org.apache.spark.sql.execution.streaming.runtime.StreamingRelation;
import scala.Function1;
import scala.Tuple2;
import scala.runtime.AbstractPartialFunction;

/** What a query reads that is no collection of ours: the leaves of its plan that are none, and their files. */
public final class Outside {
    /** The leaves of a DataFrame's plan that are neither rows of the query itself nor relations of these names. */
    public List leaves(Dataset frame, Map relations) {
        LinkedHashSet found = new LinkedHashSet();
        collect(frame.queryExecution().analyzed(), relations, found);
        return new ArrayList(found);
    }

    private static void collect(LogicalPlan plan, final Map relations, final LinkedHashSet found) {
        if (plan instanceof View && ((View) plan).isTempView()
                && relations.containsKey(((View) plan).desc().identifier().table().toLowerCase(Locale.ROOT))) {
            return;
        }
        if (plan instanceof LeafNode && !(plan instanceof LocalRelation) && !(plan instanceof OneRowRelation)
                && !(plan instanceof Range) && !(plan instanceof CTERelationRef)) {
            found.add(plan);
        }
        plan.transformExpressions(new AbstractPartialFunction() {
            public boolean isDefinedAt(Object e) {
                if (e instanceof PlanExpression) {
                    collect((LogicalPlan) ((PlanExpression) e).plan(), relations, found);
                }
                return false;
            }

            public Object applyOrElse(Object e, Function1 otherwise) {
                isDefinedAt(e);
                return otherwise.apply(e);
            }
        });
        for (Iterator i = Printer.list(plan.children()).iterator(); i.hasNext();) {
            collect((LogicalPlan) i.next(), relations, found);
        }
    }

    /** What a leaf reads: kind, format, path by path, option by option; sorted, so that it says the same again. */
    public Map described(LogicalPlan leaf) {
        Map result = new TreeMap();
        result.put("kind", leaf.nodeName());
        if (leaf instanceof LogicalRelation && ((LogicalRelation) leaf).relation() instanceof HadoopFsRelation) {
            HadoopFsRelation files = (HadoopFsRelation) ((LogicalRelation) leaf).relation();
            result.put("kind", "files");
            result.put("format", files.fileFormat().toString().toLowerCase(Locale.ROOT));
            int number = 0;
            for (Iterator i = Printer.list(files.location().rootPaths()).iterator(); i.hasNext();) {
                result.put("path " + number++, i.next().toString());
            }
            options(files.options(), result);
        }
        if (leaf instanceof StreamingRelation) {
            DataSource source = ((StreamingRelation) leaf).dataSource();
            result.put("kind", "file stream");
            result.put("format", source.className());
            options(source.options(), result);
            if (!result.containsKey("option path")) {
                result.put("kind", "stream");
            }
        }
        return result;
    }

    private static void options(scala.collection.Map options, Map result) {
        for (Iterator i = Printer.list(options.toSeq()).iterator(); i.hasNext();) {
            Tuple2 option = (Tuple2) i.next();
            result.put("option " + ((String) option._1()).toLowerCase(Locale.ROOT), option._2().toString());
        }
    }

    /** The files that a leaf of files has now: path, time of change, length. */
    public List files(LogicalPlan leaf) {
        PartitioningAwareFileIndex index =
            (PartitioningAwareFileIndex) ((HadoopFsRelation) ((LogicalRelation) leaf).relation()).location();
        List result = new ArrayList();
        for (Iterator i = Printer.list(index.allFiles().toSeq()).iterator(); i.hasNext();) {
            FileStatus file = (FileStatus) i.next();
            result.add(file.getPath().toString() + "\t" + file.getModificationTime() + "\t" + file.getLen());
        }
        return result;
    }

    /** A leaf as a DataFrame of its own. */
    public Dataset frame(SparkSession session, LogicalPlan leaf) {
        return Dataset.ofRows(session, leaf);
    }
}
