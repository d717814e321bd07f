//! Graphs, their launches, and the user objects that live as long as they do.

use std::collections::BTreeMap;
use std::ffi::{c_uint, c_ulonglong, c_void};
use std::rc::Rc;
use std::sync::Arc;

use cudarc::driver::sys::{
    CUgraph, CUgraphExec, CUgraphNode, CUhostFn, CUresult, CUstream, CUuserObject,
};

use crate::checker::Touch;
use crate::clock::Clock;
use crate::driver::Driver;
use crate::entry::{Call, Out, Outcome, entry};
use crate::event::Generation;
use crate::queue::Work;

const NO_DESTRUCTOR_SYNC: c_uint = 1;
const MOVE: c_uint = 1;

/// An operation of a graph.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) touches: Vec<Touch>,
    pub(crate) work: Work,
}

/// References to user objects, by handle.
type References = BTreeMap<CUuserObject, u32>;

/// A graph. Its nodes are in an order in which they can run.
#[derive(Debug, Default)]
pub(crate) struct Graph {
    pub(crate) nodes: Vec<Node>,
    objects: References,
}

/// A graph that can be launched.
#[derive(Debug)]
pub(crate) struct GraphExec {
    nodes: Rc<[Node]>,
    objects: References,
    /// The last launch: one comes after the other.
    last: Option<Generation>,
}

/// One launch, while it is queued or runs.
#[derive(Debug)]
pub(crate) struct Launch {
    objects: References,
    /// What has happened when it is over.
    clock: Clock,
}

/// An object of the program that is destroyed with the last graph that refers to it.
#[derive(Debug)]
pub(crate) struct UserObject {
    references: u32,
    destroy: CUhostFn,
    data: *mut c_void,
    /// The launches that have used it.
    clock: Clock,
}

impl Driver {
    fn drop_references(&mut self, objects: &References) {
        for (&object, &count) in objects {
            self.drop_object(object, count);
        }
    }

    fn drop_object(&mut self, handle: CUuserObject, count: u32) {
        let Ok(object) = self.user_objects.get_mut(handle) else {
            return;
        };
        object.references = object.references.saturating_sub(count);
        if object.references == 0
            && let Ok(object) = self.user_objects.remove(handle)
        {
            // Whom the destructor tells may rely on the graph's end. The program must not learn of it by chance, the reclaimer must.
            self.reclaimer.join(&object.clock);
            crate::host::destroy(object.destroy, object.data);
        }
    }

    fn add_references(&mut self, objects: &References) {
        for (&handle, &count) in objects {
            if let Ok(object) = self.user_objects.get_mut(handle) {
                object.references += count;
            }
        }
    }

    pub(crate) fn destroy_graph(&mut self, handle: CUgraph) {
        if let Ok(graph) = self.graphs.remove(handle) {
            self.drop_references(&graph.objects);
        }
    }

    /// A launch has run.
    pub(crate) fn end_launch(&mut self, launch: &Launch) {
        for &handle in launch.objects.keys() {
            if let Ok(object) = self.user_objects.get_mut(handle) {
                object.clock.join(&launch.clock);
            }
        }
        self.drop_references(&launch.objects);
    }
}

impl Call<'_> {
    fn graph(&mut self, handle: CUgraph) -> Result<&mut Graph, CUresult> {
        if let Err(misuse) = self.graphs.get(handle) {
            self.misused("graph", handle, misuse);
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.graphs.get_mut(handle).map_err(CUresult::from)
    }

    fn user_object(&mut self, handle: CUuserObject) -> Result<&mut UserObject, CUresult> {
        if let Err(misuse) = self.user_objects.get(handle) {
            self.misused("user object", handle, misuse);
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        self.user_objects.get_mut(handle).map_err(CUresult::from)
    }

    fn launch_graph(&mut self, handle: CUgraphExec, stream: CUstream) -> Outcome {
        let stream = self.resolve(stream)?;
        let (nodes, objects, last) = match self.graph_execs.get(handle) {
            Ok(exec) => (
                Rc::clone(&exec.nodes),
                exec.objects.clone(),
                exec.last.clone(),
            ),
            Err(misuse) => return Err(self.misused("executable graph", handle, misuse)),
        };
        if let Some(capture) = self.stream(stream).capture {
            self.invalidate(capture);
            return Err(self.not_modelled("a graph inside a graph"));
        }
        if let Some(last) = last {
            self.enqueue_wait(stream, &last)?;
        }
        let mut operation = self.enqueue(stream, Vec::new(), Work::Nothing)?;
        for node in nodes.iter() {
            operation = self.enqueue(stream, node.touches.clone(), node.work.clone())?;
        }
        let clock = self.stream(stream).clock.clone();
        self.add_references(&objects);
        self.enqueue_quietly(
            stream,
            Work::Launched(Rc::new(Launch {
                objects,
                clock: clock.clone(),
            })),
        );
        crate::host::keep_moving();
        self.graph_execs.get_mut(handle)?.last = Some(Generation {
            stream,
            operation,
            clock: Arc::new(clock),
        });
        Ok(())
    }
}

entry! {
    fn cuGraphCreate(phGraph: Out<CUgraph>, flags: c_uint) |call| {
        if flags != 0 {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let graph = call.graphs.insert(Graph::default());
        phGraph.set(graph)
    }
    fn cuGraphDestroy(hGraph: CUgraph) |call| {
        call.graph(hGraph)?;
        call.destroy_graph(hGraph);
        Ok(())
    }
    fn cuGraphGetNodes(hGraph: CUgraph, nodes: Out<CUgraphNode>, numNodes: Out<usize>) |call| {
        if !nodes.is_null() {
            return Err(call.not_modelled("a node's handle"));
        }
        let count = call.graph(hGraph)?.nodes.len();
        numNodes.set(count)
    }
    fn cuGraphInstantiateWithFlags(phGraphExec: Out<CUgraphExec>, hGraph: CUgraph, flags: c_ulonglong) |call| {
        let _ = flags;
        let graph = call.graph(hGraph)?;
        let (nodes, objects) = (graph.nodes.clone().into(), graph.objects.clone());
        call.add_references(&objects);
        let exec = call.graph_execs.insert(GraphExec { nodes, objects, last: None });
        phGraphExec.set(exec)
    }
    fn cuGraphExecDestroy(hGraphExec: CUgraphExec) |call| {
        match call.graph_execs.remove(hGraphExec) {
            Ok(exec) => {
                call.drop_references(&exec.objects);
                Ok(())
            }
            Err(misuse) => Err(call.misused("executable graph", hGraphExec, misuse)),
        }
    }
    fn cuGraphUpload(hGraphExec: CUgraphExec, hStream: CUstream) |call| {
        if let Err(misuse) = call.graph_execs.get(hGraphExec) {
            return Err(call.misused("executable graph", hGraphExec, misuse));
        }
        let stream = call.resolve(hStream)?;
        call.enqueue(stream, Vec::new(), Work::Nothing).map(drop)
    }
    fn cuGraphLaunch(hGraphExec: CUgraphExec, hStream: CUstream) |call| {
        call.launch_graph(hGraphExec, hStream)
    }
    fn cuUserObjectCreate(object_out: Out<CUuserObject>, ptr: *mut c_void, destroy: CUhostFn, initialRefcount: c_uint, flags: c_uint) |call| {
        if destroy.is_none() || initialRefcount == 0 || flags != NO_DESTRUCTOR_SYNC {
            return Err(CUresult::CUDA_ERROR_INVALID_VALUE);
        }
        let object = UserObject { references: initialRefcount, destroy, data: ptr, clock: Clock::default() };
        let handle = call.user_objects.insert(object);
        object_out.set(handle)
    }
    fn cuUserObjectRetain(object: CUuserObject, count: c_uint) |call| {
        call.user_object(object)?.references += count;
        Ok(())
    }
    fn cuUserObjectRelease(object: CUuserObject, count: c_uint) |call| {
        call.user_object(object)?;
        call.drop_object(object, count);
        Ok(())
    }
    fn cuGraphRetainUserObject(graph: CUgraph, object: CUuserObject, count: c_uint, flags: c_uint) |call| {
        call.graph(graph)?;
        let held = call.user_object(object)?;
        match flags {
            0 => held.references += count,
            // The caller's references become the graph's.
            MOVE => {}
            _ => return Err(CUresult::CUDA_ERROR_INVALID_VALUE),
        }
        *call.graph(graph)?.objects.entry(object).or_default() += count;
        Ok(())
    }
    fn cuGraphReleaseUserObject(graph: CUgraph, object: CUuserObject, count: c_uint) |call| {
        let held = call.graph(graph)?.objects.get_mut(&object).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        *held = held.checked_sub(count).ok_or(CUresult::CUDA_ERROR_INVALID_VALUE)?;
        if *held == 0 {
            call.graph(graph)?.objects.remove(&object);
        }
        call.drop_object(object, count);
        Ok(())
    }
}
